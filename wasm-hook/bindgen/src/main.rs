//! Makes JavaScript from the compiled module: `session-slot-bindgen MODULE.wasm FOLDER`. Called by scripts/build-wasm.sh.
use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder] = arguments.as_slice() else {
        eprintln!("usage: session-slot-bindgen MODULE.wasm FOLDER");
        return ExitCode::from(2);
    };
    match generate(module, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(module: &str, folder: &str) -> Result<(), String> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name("module").typescript(false);
    bindgen.remove_name_section(true).remove_producers_section(true);
    bindgen.web(true).map_err(|error| format!("{error:#}"))?;
    // A bundler that finds the path of a .wasm file in the text looks for that file. There is none: it is inlined.
    bindgen.omit_default_module_path(true);
    bindgen.generate(folder).map_err(|error| format!("{error:#}"))
}
