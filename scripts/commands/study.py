"""``merlin-sim study``: many runs of one question."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("study_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--results_dir",
    type=click.Path(path_type=Path),
    help="Directory of runs and report. [default: the file's; studies/ and the file's name]",
)
@click.option("--report_only", is_flag=True, help="Run nothing; report what there is.")
def command(study_file: Path, results_dir: Path | None, report_only: bool) -> None:
    """Run the study that STUDY_FILE describes, and compare its settings.

    A YAML file names datasets, seeds, options and the values of a grid or a search. Each run has a
    results directory of its own. After Ctrl-C or a kill, the same command continues the study;
    started several times, the processes share the runs. The report is report/study.html.
    """
    from ...foundation.progress import Terminal
    from ...training.studies.runner import StudyRunner, require_all
    from ...training.studies.study_file import read_study
    from ...training.studies.study_report import write_study_report
    from ..options.study_options import settle_study

    file = read_study(study_file)
    root = results_dir or file.results_dir or Path("studies") / study_file.stem
    terminal = Terminal()
    study = settle_study(file, root)
    runner = StudyRunner(study, terminal.say)
    if not report_only:
        study.make()
        runner.run()
    report = write_study_report(study, terminal)
    for sentence in report.sentences:
        click.echo(sentence)
    click.echo(report.page)
    require_all(runner)
