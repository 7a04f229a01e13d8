//! The command `anabranch`.

fn main() -> std::process::ExitCode {
    anabranch::cli::main()
}
