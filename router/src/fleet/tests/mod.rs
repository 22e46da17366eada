//! The fleet: single scenes, and seeded random schedules.

mod breaking;
mod budgets;
mod evictions;
mod outage;
mod overflows;
mod returning;
mod simulation;
mod spreading;
mod stage;
mod world;
