//! What is asked?
