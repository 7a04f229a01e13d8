//! The command `anabranch`.

mod loader;
mod memory;
mod signals;

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory;

fn main() -> std::process::ExitCode {
    loader::without_device_selection();
    signals::without_file_size();
    anabranch_cli::main()
}
