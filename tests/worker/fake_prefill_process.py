"""A prefill worker's engine process without a model."""

from engine.process.fake_process import load_fake_replica
from engine.process.main import engine_main
from prefill_worker.engine_process import make_exporter

if __name__ == "__main__":
    engine_main(make_exporter, load=load_fake_replica)
