# The names of `__init__.py`, which imports each when it is first asked for.
from merlin.io import Dataset as Dataset

from .feed.loader import Loader as Loader
from .foundation.exceptions import MerlinSimError as MerlinSimError
from .foundation.exceptions import SpecError as SpecError
from .models import DCNv2Block as DCNv2Block
from .models import DCNv2Model as DCNv2Model
from .models import DIENBlock as DIENBlock
from .models import DIENModel as DIENModel
from .models import DINBlock as DINBlock
from .models import DINModel as DINModel
from .models import DLRMBlock as DLRMBlock
from .models import DLRMModel as DLRMModel
from .models import InterestModel as InterestModel
from .models import OptionError as OptionError
from .models import SIMBlock as SIMBlock
from .models import SIMModel as SIMModel
from .models import build_model as build_model
from .models import options_type as options_type
from .models.interest.search_report import format_search_report as format_search_report
from .models.interest.search_report import search_report as search_report
from .schemas.dataset import DatasetDirectory as DatasetDirectory
from .schemas.specs.feature_spec import FeatureSpec as FeatureSpec
from .schemas.translation.merlin_schema import to_feature_spec as to_feature_spec
from .schemas.translation.merlin_schema import to_merlin_schema as to_merlin_schema
from .steps.optimizers import SGD as SGD
from .steps.optimizers import Adam as Adam
from .steps.optimizers import LazyAdam as LazyAdam
from .workflows.amazon.amazon_books import AmazonReviews as AmazonReviews
from .workflows.behaviour.behaviour_columns import BehaviourColumns as BehaviourColumns
from .workflows.behaviour.behaviour_graph import encode_histories as encode_histories
from .workflows.behaviour.behaviour_graph import explode_histories as explode_histories
from .workflows.behaviour.behaviour_graph import fitted_workflow as fitted_workflow
from .workflows.behaviour.behaviour_graph import make_samples as make_samples
from .workflows.behaviour.build import DatasetBuilder as DatasetBuilder
from .workflows.behaviour.fitted import FittedWorkflow as FittedWorkflow
from .workflows.behaviour.rules import SampleRules as SampleRules
from .workflows.logs.table_log import TableLog as TableLog
from .workflows.synthetic.planted_behaviour import PlantedBehaviour as PlantedBehaviour
from .workflows.synthetic.synthesis import synthesize as synthesize
from .workflows.transcoding.transcode import Transcoder as Transcoder

__version__: str
