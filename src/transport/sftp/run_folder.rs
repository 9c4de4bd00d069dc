//! The folder of one run, beside the memory: the new file stands in it before the
//! swap, and what was displaced after it.
//!
//! A host may do what it was asked for long after the connection was lost, and
//! somebody else has finished the run meanwhile: then it would take a memory away
//! that an agent has written to since. Requests name paths, so a run has a path
//! that can be taken from it. Whoever finishes for another run gives its folder
//! another name first, and everything that was asked of the old one fails.

use std::path::PathBuf;
use std::time::Instant;

use super::connection::{Answer, DIRECTORY, attrs, bytes, code, kind, lstat};
use super::folder::{Handle, SftpFolder, handle, moved};
use super::settle::OpenDisplacedFile;
use super::wire::{Request, flags, status};
use crate::durable;
use crate::error::Error;
use crate::transport::{Cause, Folder, Method, Swapped, TransportError};

/// The new file in it.
const NEW: &str = "new";

/// What was displaced in it begins so; a random name follows.
const OLD: &str = "old";

/// A further name of the new file, for as long as it takes to find out whether the
/// file system there has such names.
const LINK: &str = "link";

/// How often a swap starts over because the agent has made a new file.
const ATTEMPTS: usize = 16;

/// How many requests a removal in the folder of a run is.
pub(super) const UNLINK: usize = 3;

const STANDS: &str = "the server says that it was removed, and it is there";

/// The folder of a run that was taken over.
pub(super) struct TakenOver {
    /// What the caller calls it.
    staged: String,
    /// What it is called now.
    now: String,
}

impl SftpFolder {
    /// The path of a name, in the folder of a run wherever that is now.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        if let Some(TakenOver { staged, now }) = &*self.taken_over.borrow()
            && let Some(rest) = name.strip_prefix(staged.as_str())
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return self.path.join(format!("{now}{rest}"));
        }
        self.path.join(name)
    }

    pub(super) fn new_of(staged: &str) -> String {
        format!("{staged}/{NEW}")
    }

    fn link_of(staged: &str) -> String {
        format!("{staged}/{LINK}")
    }

    /// Requests that make the folder of a run and open it.
    fn make(&self, staged: &str) -> [Request; 2] {
        let path = self.at(staged);
        [
            Request::MakeDir {
                path: bytes(&path),
                mode: 0o700,
            },
            Request::Open {
                path: bytes(&path.join(".")),
                flags: flags::READ,
                mode: None,
            },
        ]
    }

    /// Takes the answers to them. A server that cannot open folders cannot sync
    /// them, either, and that is all.
    fn made(&self, staged: &str, answers: &mut Vec<Answer>) -> Result<(), TransportError> {
        let path = self.at(staged);
        if answers.len() < 2 {
            return Err(self.host.odd_answer("create", &path));
        }
        let opened = handle(answers.remove(1));
        let made = self.is_ok(&answers.remove(0), "create", &path);
        match made {
            Ok(()) => {
                self.run.replace(opened);
                Ok(())
            }
            Err(error) => {
                opened.into_iter().for_each(|handle| self.close(handle));
                Err(error)
            }
        }
    }

    /// Makes the folder of a run, and the new file in it, open. Whether the file
    /// system there has hard links is tried with it: to find out when the memory was
    /// taken away would be too late.
    pub(super) fn create(&self, staged: &str) -> Result<Handle, TransportError> {
        let new = Self::new_of(staged);
        let path = self.at(&new);
        let mut batch = self.make(staged).to_vec();
        batch.push(Request::Open {
            path: bytes(&path),
            flags: flags::READ | flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
            mode: Some(0o600),
        });
        let link = self.at(&Self::link_of(staged));
        if self.host.extensions().hardlink {
            batch.push(Request::HardLink {
                from: bytes(&path),
                to: bytes(&link),
            });
            batch.push(Request::Remove { path: bytes(&link) });
        }
        let mut answers = self.host.ask(batch)?;
        let made = self.made(staged, &mut answers);
        let tried = answers.split_off(1.min(answers.len()));
        let opened = answers.pop();
        let refused = opened.as_ref().and_then(code);
        let opened = opened.and_then(handle);
        match (made, opened, refused) {
            (Ok(()), Some(handle), _) => {
                if let [linked, removed] = tried.as_slice() {
                    self.linkless.set(code(linked) != Some(status::OK));
                    if !matches!(code(removed), Some(status::OK | status::NO_SUCH_FILE)) {
                        self.close(handle);
                        let _ = self.remove(&Self::link_of(staged));
                        let _ = self.remove(&new);
                        return Err(match code(removed) {
                            Some(code) => self.host.failed("remove", &link, code),
                            None => self.host.odd_answer("remove", &link),
                        });
                    }
                }
                Ok(handle)
            }
            (Ok(()), None, refused) => {
                let _ = self.remove(&new);
                Err(match refused {
                    Some(code) => self.host.failed("create", &path, code),
                    None => self.host.odd_answer("create", &path),
                })
            }
            // Somebody has made a folder of that name.
            (Err(error), opened, _) => {
                if let Some(handle) = opened {
                    self.close(handle);
                    let _ = self.remove(&new);
                }
                Err(error)
            }
        }
    }

    /// Puts the new file in the memory's place.
    pub(super) fn exchange_names(&self, staged: &str) -> Result<Swapped, TransportError> {
        let mut displaced = Vec::new();
        let name = Self::new_of(staged);
        let new = match self.new.take() {
            Some(new) => new,
            None => self.staged_before(&name)?,
        };
        for _ in 0..ATTEMPTS {
            let random = durable::random_name().map_err(refused)?;
            let aside = format!("{staged}/{OLD}{random}");
            let pair = vec![self.move_aside(&aside), self.put_in_place(&name)];
            let mut behind = vec![lstat(&self.memory), lstat(&self.at(&aside))];
            behind.extend(self.sync_folders());
            let answers = self.host.ask_apart(pair, behind)?;
            let at = self.clock.instant();
            let [renamed, linked, look @ ..] = answers.as_slice() else {
                return Err(self.host.odd_answer("replace", &self.memory));
            };
            // What stands there was displaced, whatever the server says of it.
            let aside_stands = look.get(1).and_then(attrs).is_some();
            match code(renamed) {
                Some(status::OK) => displaced.push(aside),
                Some(_) if aside_stands => displaced.push(aside),
                Some(status::NO_SUCH_FILE) => {}
                Some(code) => return Err(self.host.failed("replace", &self.memory, code)),
                None => return Err(self.host.odd_answer("replace", &self.memory)),
            }
            match code(linked) {
                Some(status::OK) => {
                    let method = match displaced.is_empty() {
                        true => Method::Create,
                        false => Method::TakeAway,
                    };
                    let last = match code(renamed) {
                        Some(status::OK) => displaced.last(),
                        _ if aside_stands => displaced.last(),
                        _ => None,
                    };
                    if !self.look_after(&name, last.map(|name| (name, at)), look, new)? {
                        displaced.push(name);
                    }
                    return Ok(Swapped { method, displaced });
                }
                // The agent was quicker and made a new one: that one, too.
                Some(_) if self.stands_at(&self.memory)? => {}
                // The old one is better than none.
                linked => {
                    if let Some(aside) = displaced.last() {
                        self.put_back(aside)?;
                    }
                    return Err(match linked {
                        Some(code) => self.host.failed("replace", &self.memory, code),
                        None => self.host.odd_answer("replace", &self.memory),
                    });
                }
            }
        }
        Err(moved(&self.host, &self.memory))
    }

    /// Takes the memory away into the folder of a run.
    pub(super) fn take_memory_away(&self, staged: &str) -> Result<(), TransportError> {
        let name = Self::new_of(staged);
        let to = self.at(&name);
        let mut answers = self.host.ask(self.make(staged).to_vec())?;
        self.made(staged, &mut answers)?;
        let mut batch = vec![self.move_aside(&name), lstat(&to)];
        batch.extend(self.sync_folders());
        let answers = self.host.ask(batch)?;
        let error = match answers.first().and_then(code) {
            Some(status::OK) if answers.get(1).and_then(attrs).is_some() => return Ok(()),
            Some(status::OK) => {
                let why = "the server says that it was renamed, and it is not there";
                return Err(self.host.refused("displace", &to, why));
            }
            Some(status::NO_SUCH_FILE) => moved(&self.host, &self.memory),
            Some(code) => self.host.failed("take away", &self.memory, code),
            None => return Err(self.host.odd_answer("take away", &self.memory)),
        };
        let _ = self.remove(&name);
        Err(error)
    }

    /// Gives the folder of another run another name, so that nothing that was asked
    /// of it under the old one is done any more.
    pub(super) fn take_folder_over(
        &self,
        staged: &str,
        names: &[String],
    ) -> Result<(), TransportError> {
        let Some((now, before)) = names.split_last() else {
            return Ok(());
        };
        let to = self.path.join(now);
        // The youngest first: what has an older name beside it was made later, by a
        // host that was slow or by an agent, and is not the run's.
        let before = before.iter().rev().map(String::as_str);
        for name in before.chain([staged]) {
            let from = self.path.join(name);
            let mut batch = vec![self.rename(&from, &to), lstat(&from), lstat(&to)];
            // A run that was interrupted while it tried links.
            batch.push(Request::Remove {
                path: bytes(&to.join(LINK)),
            });
            batch.extend(self.sync_folders());
            let answers = self.host.ask(batch)?;
            // What was looked at before may have been changed by it.
            self.looked.take();
            let stands = |place: usize| answers.get(place).and_then(attrs).is_some();
            let is_folder = answers.get(2).and_then(attrs).and_then(kind) == Some(DIRECTORY);
            match answers.first().and_then(code) {
                Some(status::OK) if is_folder => break,
                // What is no folder is not the run's, and a link would lead
                // elsewhere: it gets its name back.
                Some(status::OK) if stands(2) => {
                    let back = [self.rename(&to, &from), lstat(&to)];
                    let answers = self.host.ask(back.to_vec())?;
                    if answers.get(1).and_then(code) != Some(status::NO_SUCH_FILE) {
                        let why = "what stands there is no directory";
                        return Err(self.host.refused("take over", &to, why));
                    }
                }
                Some(status::NO_SUCH_FILE) if !stands(1) => {}
                Some(status::OK | status::NO_SUCH_FILE) | None => {
                    return Err(self.host.odd_answer("take over", &from));
                }
                Some(code) => return Err(self.host.failed("take over", &from, code)),
            }
        }
        self.taken_over.replace(Some(TakenOver {
            staged: staged.to_string(),
            now: now.clone(),
        }));
        Ok(())
    }

    /// What stands in the folder of a run that a swap may have put there; the new
    /// file first.
    pub(super) fn names_of_run(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let mut names = Vec::new();
        for name in self.list(&self.at(staged))?.unwrap_or_default() {
            // Ours are ASCII.
            if let Ok(name) = String::from_utf8(name)
                && (name == NEW || name.strip_prefix(OLD).is_some_and(durable::is_random_name))
            {
                names.push(format!("{staged}/{name}"));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Requests that remove a name, and the folder of the run with its last one,
    /// and that look whether it went.
    pub(super) fn unlink(&self, name: &str) -> Vec<Request> {
        let path = self.at(name);
        let mut batch = vec![Request::Remove { path: bytes(&path) }];
        if let Some(folder) = path.parent().filter(|folder| *folder != self.path) {
            batch.push(Request::RemoveDir {
                path: bytes(folder),
            });
            batch.push(lstat(folder));
        }
        batch
    }

    /// After the removal of a name, of which these are the answers: whether it is
    /// gone, as the server says, and the folder of the run with the last one. Else
    /// its record must not end.
    pub(super) fn is_unlinked(&self, name: &str, answers: &[Answer]) -> Result<(), TransportError> {
        let gone = answers.get(UNLINK - 1).and_then(code) == Some(status::NO_SUCH_FILE);
        let Some((staged, _)) = name.split_once('/').filter(|_| !gone) else {
            return Ok(());
        };
        let mut names = self.names_of_run(staged)?;
        let kept = self.displaced.borrow();
        names.retain(|name| !kept.contains_key(name));
        let looks = names.iter().map(|name| lstat(&self.at(name))).collect();
        let looks = self.host.ask(looks)?;
        // Folders stay where they are; nobody but an agent makes them there.
        let stands = |look: &Answer| attrs(look).is_some_and(|it| kind(it) != Some(DIRECTORY));
        if let Some((left, _)) = names.iter().zip(&looks).find(|(_, look)| stands(look)) {
            return Err(self.host.refused("remove", &self.at(left), STANDS));
        }
        match kept.is_empty() {
            true => self.remove_run_folder(staged),
            false => Ok(()),
        }
    }

    /// Removes the folder of a run, unless there is something in it.
    pub(super) fn remove_run_folder(&self, staged: &str) -> Result<(), TransportError> {
        let path = self.at(staged);
        let mut batch = vec![
            // In case that it was said to be gone and is not.
            Request::Remove {
                path: bytes(&path.join(LINK)),
            },
            Request::RemoveDir { path: bytes(&path) },
            lstat(&path),
        ];
        batch.extend(self.sync_folders());
        let answers = self.host.ask(batch)?;
        match (
            answers.get(2).and_then(code),
            answers.get(2).and_then(attrs),
        ) {
            (Some(status::NO_SUCH_FILE), _) => return Ok(()),
            // That is somebody else's.
            (_, Some(found)) if kind(found) != Some(DIRECTORY) => return Ok(()),
            _ => {}
        }
        match answers.get(1).and_then(code) {
            Some(status::OK | status::NO_SUCH_FILE) => {
                Err(self.host.refused("remove", &path, STANDS))
            }
            // What is not the run's, an agent has put there.
            Some(_) if self.list(&path)?.is_none_or(|names| !is_empty(&names)) => Ok(()),
            Some(code) => Err(self.host.failed("remove", &path, code)),
            None => Err(self.host.odd_answer("remove", &path)),
        }
    }

    /// Notes what was displaced, as it was read before.
    pub(super) fn was_displaced(&self, name: &str, handle: Handle, at: Instant) {
        let displaced = OpenDisplacedFile {
            handle,
            held: self.read_before.get(),
            at,
        };
        let mut all = self.displaced.borrow_mut();
        all.insert(name.to_string(), displaced);
    }
}

/// Whether these are the names of an empty folder.
fn is_empty(names: &[Vec<u8>]) -> bool {
    names.iter().all(|name| name == b"." || name == b"..")
}

fn refused(error: Error) -> TransportError {
    TransportError::new(Cause::Refused, error)
}
