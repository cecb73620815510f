//! Writes the golden image of the present format version, which `--test golden`
//! opens from then on. Once per version: an image is not written over, because
//! stores like it are out in the world.

#[path = "../tests/common/mod.rs"]
mod common;

use common::golden;

fn main() -> std::io::Result<()> {
    let image = golden::make();
    let file = golden::file_of(golden::version_of(&image));
    if file.exists() {
        println!("{} is there already: it is kept", file.display());
        return Ok(());
    }
    let packed = golden::pack(&image);
    std::fs::create_dir_all(golden::folder())?;
    std::fs::write(&file, &packed)?;
    println!("{}: {} bytes", file.display(), packed.len());
    Ok(())
}
