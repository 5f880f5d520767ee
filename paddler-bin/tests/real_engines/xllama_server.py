#!/usr/bin/env python3
"""llama.cpp's own HTTP server, out of the package `xllamacpp`, for as long as standard input is open.

Whoever starts it keeps the other end of that pipe: however the starter ends, the server ends with it.
The flags are named as llama-server's are.
"""
import argparse
import os
import sys

import xllamacpp as xlc

p = argparse.ArgumentParser()
p.add_argument("-m", "--model", required=True)
p.add_argument("--alias", required=True)
p.add_argument("--port", type=int, default=0, help="0: a free one")
p.add_argument("-np", "--parallel", type=int, default=4)
p.add_argument("-c", "--ctx-size", type=int, default=8192)
p.add_argument("--metrics", action="store_true")
p.add_argument("--embeddings", action="store_true")
a = p.parse_args()

q = xlc.CommonParams()
q.model.path = a.model
q.model_alias = {a.alias}
q.hostnames = ["127.0.0.1"]
q.port = a.port
q.n_parallel = a.parallel
q.n_ctx = a.ctx_size
# Several of these share one machine with the tests.
q.cpuparams.n_threads = 1
q.cpuparams_batch.n_threads = 1
q.endpoint_metrics = a.metrics
q.endpoint_slots = True
if a.embeddings:
    q.embedding = True
    q.pooling_type = xlc.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN

server = xlc.Server(q)
print("listening on", server.listening_address, flush=True)
while sys.stdin.readline():
    pass
os._exit(0)
