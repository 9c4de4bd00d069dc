//! Makes an archive of many entries of realistic text: words with a Zipf distribution, in notes as
//! agents write them.

use std::fs;
use std::path::Path;

/// Number of different words.
const VOCABULARY: usize = 60_000;

/// A small generator of pseudo-random numbers (xorshift), the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// The rank of a word: the word of rank `r` is about `r` times rarer than the first.
    pub fn zipf_rank(&mut self) -> usize {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ((VOCABULARY as f64).powf(share) as usize).min(VOCABULARY - 1)
    }
}

/// The word of a rank: short ones are frequent, as in a language.
pub fn word(rank: usize) -> String {
    const SYLLABLES: [&str; 32] = [
        "ta", "re", "mi", "so", "lu", "ne", "ka", "po", "di", "ver", "con", "tem", "ras", "qui",
        "bel", "or", "in", "sta", "mo", "ful", "gan", "she", "pro", "tik", "wa", "zen", "har",
        "dol", "ex", "um", "yo", "cri",
    ];
    let mut rest = rank + 1;
    let mut text = String::new();
    while rest > 0 {
        text.push_str(SYLLABLES[rest % SYLLABLES.len()]);
        rest /= SYLLABLES.len();
    }
    text
}

/// Writes `count` scratch entries of about `bytes` bytes each into an archive, in the directories of
/// `agents` agents.
pub fn write_entries(archive: &Path, agents: usize, count: usize, bytes: usize) {
    let mut random = Random::new(20_260_314);
    let begin = chrono::NaiveDate::from_ymd_opt(2026, 1, 1)
        .and_then(|day| day.and_hms_opt(0, 0, 0))
        .expect("a date");
    for agent in 0..agents {
        fs::create_dir_all(archive.join(format!("agent-{agent:03}"))).expect("a directory");
    }
    for number in 0..count {
        let agent = number % agents;
        let minutes = (number / agents) as i64 * 30;
        let stamp = (begin + chrono::Duration::minutes(minutes)).format("%Y-%m-%d_%H%M");
        let path = archive.join(format!("agent-{agent:03}/{stamp}.md"));
        let text = entry_text(&mut random, agent, &stamp.to_string(), bytes);
        fs::write(path, text).expect("an entry");
    }
}

fn entry_text(random: &mut Random, agent: usize, stamp: &str, bytes: usize) -> String {
    let mut text = format!("# agent-{agent:03} scratch notes — archived {stamp}\n\n");
    // Sizes differ: from a fourth to seven fourths.
    let size = bytes / 4 + random.below(bytes * 3 / 2);
    while text.len() < size {
        text.push_str("- ");
        for place in 0..5 + random.below(14) {
            if place > 0 {
                text.push(' ');
            }
            match random.below(40) {
                0 => text.push_str(&format!("#{}", random.below(90_000))),
                1 => text.push_str(&format!("src/{}.rs", word(random.zipf_rank()))),
                2 => text.push_str(&format!("{:08x}", random.next() as u32)),
                _ => text.push_str(&word(random.zipf_rank())),
            }
        }
        text.push('\n');
    }
    text
}
