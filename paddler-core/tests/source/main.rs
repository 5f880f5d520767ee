//! Do the readers of engines' answers say what the engines said? Against recorded answers of real engines.

mod degraded;
mod llamacpp;
mod openai;
mod probe;
mod prometheus;
mod random;
mod sample;
mod vllm;
