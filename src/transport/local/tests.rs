//! Tests of the instant in which a displaced file is removed, which no test can hit from outside.

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use chrono::{DateTime, FixedOffset, Utc};
use tempfile::TempDir;

use super::*;
use crate::base::sys::{self, LeaseOutcome};
use crate::transport::DisplacedObject;

type SleepAction = Box<dyn FnMut() + Send>;

/// A clock that advances only in `sleep`, after calling a function.
struct SteppingClock {
    now: Mutex<Instant>,
    during_sleep: Mutex<SleepAction>,
}

impl SteppingClock {
    fn new(during_sleep: impl FnMut() + Send + 'static) -> Arc<SteppingClock> {
        Arc::new(SteppingClock {
            now: Mutex::new(Instant::now()),
            during_sleep: Mutex::new(Box::new(during_sleep)),
        })
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> DateTime<FixedOffset> {
        Utc::now().fixed_offset()
    }

    fn instant(&self) -> Instant {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) {
        self.during_sleep.lock().unwrap()();
        *self.now.lock().unwrap() += duration;
    }
}

/// Settles a file that was removed while an agent waited to open it for writing; the agent writes,
/// then calls `then` with its descriptor at each sleep.
fn settle_removed_file(
    mut then: impl FnMut(&mut Option<StdFile>) + Send + 'static,
    inspect: &mut dyn FnMut(Vec<u8>) -> Result<(), Error>,
) -> SettleOutcome {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("displaced");
    fs::write(&path, "old").unwrap();
    let file = StdFile::open(&path).unwrap();
    assert_eq!(sys::take_read_lease(file.as_fd()), LeaseOutcome::Granted);
    let (sender, receiver) = channel();
    let opener = thread::spawn({
        let path = path.clone();
        move || {
            let mut file = StdFile::options().append(true).open(path).unwrap();
            file.write_all(b" and late").unwrap();
            sender.send(file).unwrap();
        }
    });
    while sys::is_read_lease_unbroken(file.as_fd()) {
        thread::yield_now();
    }
    let mut theirs = None;
    let clock = SteppingClock::new(move || {
        if let Ok(file) = receiver.try_recv() {
            theirs = Some(file);
        } else if theirs.is_none() {
            theirs = receiver.recv().ok();
        }
        then(&mut theirs);
    });
    let directory = LocalTransport::new(clock)
        .open_local_directory(&path)
        .unwrap();
    directory.directory.remove_name("displaced").unwrap();
    let settlement = Settlement::new(&directory, "displaced");
    let settled = settlement.inspect_after_removal(&file, &mut |object| {
        let DisplacedObject::File(read) = object else {
            panic!("no file")
        };
        let mut bytes = Vec::new();
        read(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        inspect(bytes)
    });
    opener.join().unwrap();
    settled
}

#[test]
fn opener_during_removal_is_waited_for() {
    let mut seen = Vec::new();
    let settled = settle_removed_file(|file| drop(file.take()), &mut |bytes| {
        seen.push(bytes);
        Ok(())
    });
    assert_eq!(settled, SettleOutcome::Removed { was_watched: true });
    assert_eq!(seen, [b"old and late"]);
}

#[test]
fn open_removed_file_is_reported_lost() {
    let mut seen = Vec::new();
    let settled = settle_removed_file(|_| {}, &mut |bytes| {
        seen.push(bytes);
        Ok(())
    });
    let SettleOutcome::Lost(error) = settled else {
        panic!("{settled:?}")
    };
    assert!(error.message().ends_with("a writer still has it open"));
    assert_eq!(seen, [b"old and late"], "what there was is kept");
}

#[test]
fn unarchivable_removed_file_is_reported_removed() {
    let settled = settle_removed_file(|file| drop(file.take()), &mut |_| {
        Err(Error::new(ErrorKind::Host, "the disk is full"))
    });
    let SettleOutcome::Lost(error) = settled else {
        panic!("{settled:?}")
    };
    assert_eq!(error.kind(), ErrorKind::Host);
    assert!(error.message().contains("was removed"), "{error}");
    assert!(error.message().ends_with("the disk is full"), "{error}");
}
