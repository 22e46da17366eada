//! Says where a measurement was made: without it, numbers can't be compared.

use std::process::Command;

/// Cores, CPU and kernel in one line.
pub fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = output_of("uname", &["-srm"]).unwrap_or_else(|| "unknown kernel".to_owned());
    format!("{cores} cores, {}, {kernel}", cpu().unwrap_or_else(|| "unknown CPU".to_owned()))
}

fn cpu() -> Option<String> {
    let linux = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text));
    linux.or_else(|| output_of("sysctl", &["-n", "machdep.cpu.brand_string"]))
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What a command prints, if it succeeds and prints anything.
pub fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
