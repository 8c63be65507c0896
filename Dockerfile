# Images of one code base.
#
#   docker build --target cpu -t merlin-sim:cpu .
#   docker build --target server -t merlin-sim:server .
#   docker build --target gpu-wheels -t merlin-sim:gpu-wheels .
#   docker build --target gpu -t merlin-sim:gpu .
#
# What of this was run and what was not: docs/container.md.
ARG CPU_BASE=python:3.11.9-slim-bookworm
ARG GPU_BASE=nvcr.io/nvidia/merlin/merlin-tensorflow:23.06

# ---------------------------------------------------------------------------------------------
# cpu-build: a plain Python image and the Makefile that a person runs. Horovod is compiled here.
# hadolint ignore=DL3006
FROM ${CPU_BASE} AS cpu-build

ARG USER_ID=1000
ENV HOME=/home/merlin
COPY scripts/setup_debian.sh /tmp/setup_debian.sh
RUN /tmp/setup_debian.sh /home/merlin/merlin_sim ${USER_ID}
USER ${USER_ID}:${USER_ID}
WORKDIR /home/merlin/merlin_sim

# The environment changes seldom, the code often: the first layer holds the packages, Horovod too.
COPY --chown=${USER_ID}:${USER_ID} requirements requirements
COPY --chown=${USER_ID}:${USER_ID} scripts/setup.sh scripts/gpu_environment.py scripts/
RUN scripts/setup.sh --packages
COPY --chown=${USER_ID}:${USER_ID} . .
RUN make setup

# ---------------------------------------------------------------------------------------------
# cpu: what was built, without git, make and compilers.
# hadolint ignore=DL3006
FROM ${CPU_BASE} AS cpu

ARG USER_ID=1000
ENV HOME=/home/merlin \
    USER=merlin
COPY --from=cpu-build --chown=${USER_ID}:${USER_ID} /home/merlin/merlin_sim /home/merlin/merlin_sim
USER ${USER_ID}:${USER_ID}
WORKDIR /home/merlin/merlin_sim
ENV PATH=/home/merlin/merlin_sim/.venv/bin:${PATH}
CMD ["merlin-sim", "--help"]

# ---------------------------------------------------------------------------------------------
# server: the same, whose only work is to serve; it alone is asked whether it is ready.
FROM cpu AS server

EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
  CMD ["/home/merlin/merlin_sim/scripts/healthcheck.sh"]
ENTRYPOINT ["merlin-sim", "serve"]
CMD ["--help"]

# ---------------------------------------------------------------------------------------------
# gpu-wheels: the same with the packages for a GPU, CUDA's libraries among them. Every one of them
# is locked; of the machine only the driver is needed. Horovod averages over the host's memory.
# hadolint ignore=DL3006
FROM ${CPU_BASE} AS gpu-wheels-build

ARG USER_ID=1000
ENV HOME=/home/merlin \
    DEVICE=gpu
COPY scripts/setup_debian.sh /tmp/setup_debian.sh
RUN /tmp/setup_debian.sh /home/merlin/merlin_sim ${USER_ID}
USER ${USER_ID}:${USER_ID}
WORKDIR /home/merlin/merlin_sim

COPY --chown=${USER_ID}:${USER_ID} requirements requirements
COPY --chown=${USER_ID}:${USER_ID} scripts/setup.sh scripts/gpu_environment.py scripts/
RUN scripts/setup.sh --packages
COPY --chown=${USER_ID}:${USER_ID} . .
RUN make setup

# hadolint ignore=DL3006
FROM ${CPU_BASE} AS gpu-wheels

ARG USER_ID=1000
ENV HOME=/home/merlin \
    USER=merlin \
    DEVICE=gpu \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=gpu-wheels-build --chown=${USER_ID}:${USER_ID} /home/merlin/merlin_sim /home/merlin/merlin_sim
USER ${USER_ID}:${USER_ID}
WORKDIR /home/merlin/merlin_sim
ENV PATH=/home/merlin/merlin_sim/.venv/bin:${PATH}
CMD ["merlin-sim", "--help"]

# ---------------------------------------------------------------------------------------------
# gpu: NVIDIA's Merlin TensorFlow container. Its CUDA, cudf, TensorFlow, Horovod with NCCL and
# Triton stay; this package and the Merlin packages that must move are added. What is assumed of it
# is looked at (scripts/setup_container.sh), and the build ends where it is not so.
# hadolint ignore=DL3006
FROM ${GPU_BASE} AS gpu

ARG USER_ID=1000
# As in the published implementation's container.
ENV HOROVOD_CYCLE_TIME=0.1 \
    HOROVOD_FUSION_THRESHOLD=67108864 \
    HOROVOD_NUM_STREAMS=2 \
    HOME=/home/merlin \
    USER=merlin

WORKDIR /workspace/merlin_sim
COPY . .
RUN scripts/setup_container.sh
RUN scripts/setup_debian.sh /home/merlin/results ${USER_ID}
USER ${USER_ID}:${USER_ID}

CMD ["merlin-sim", "--help"]
