"""A decode worker's engine process without a model."""

from decode_worker.engine_process import make_intake
from engine.process.fake_process import load_fake_replica
from engine.process.main import engine_main

if __name__ == "__main__":
    engine_main(make_intake, load=load_fake_replica)
