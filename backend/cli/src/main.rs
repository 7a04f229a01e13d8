//! The command `anabranch`.

mod loader;
mod memory;

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory;

fn main() -> std::process::ExitCode {
    loader::without_device_selection();
    anabranch_cli::main()
}
