//! How does each engine say how it is? One file per engine; pure reading of what it answered.
