//! The public conformance suite for lease stores.
