//! A simulated inference engine.
