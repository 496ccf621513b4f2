"""A decode worker's engine process without a model."""

from decode_worker.engine_process import make_intake
from engine.fake_process import load_fake_replica
from engine.process import engine_main

if __name__ == "__main__":
    engine_main(make_intake, load=load_fake_replica)
