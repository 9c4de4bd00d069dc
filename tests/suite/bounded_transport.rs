//! Calls with a time limit, which run on another thread.

use memory_shepherd::transport::{ByteSink, StagedAttributes};

use super::contract::{DiskFixture, TransportFixture};

/// A run that missed the changes would go on before they are on the disk.
#[test]
fn changes_of_a_call_are_known_when_it_returns() {
    let fixture = DiskFixture::bounded();
    fixture.write("MEMORY.md", b"notes");
    let memory = fixture.directory().join("MEMORY.md");
    let directory = fixture.transport().open_directory(&memory).unwrap();
    for round in 0..2000 {
        let mut content = |sink: ByteSink<'_>| sink(b"baseline");
        let name = format!(".shepherd-{round:032x}");
        directory
            .stage(&name, &mut content, StagedAttributes::Inherited)
            .unwrap();
        let changed = directory.take_unsynced().len();
        assert!(changed > 0, "the changes of call {round} are not known");
    }
}
