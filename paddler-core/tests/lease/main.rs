//! Is what we have open at each upstream counted right, whatever happens?

mod pool;
mod property;
mod sample;
mod stage;
mod stress;
