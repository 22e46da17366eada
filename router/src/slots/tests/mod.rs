//! The slot table against a small model of llama-server: single scenes, and seeded random schedules.

mod direct;
mod fairness;
mod queue;
mod saving;
mod scenes;
mod simulation;
mod spilling;
mod states;
mod world;
