//! Seeded.
