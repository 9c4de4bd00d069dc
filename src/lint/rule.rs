//! The table of all rules: identifiers, severities and explanations. `lint rules`, `lint explain`,
//! the SARIF output and `docs/lint.md` follow it.

use std::fmt;

use serde::{Serialize, Serializer};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Should be corrected.
    Warning,
    /// Must be corrected.
    Error,
}

impl Severity {
    /// All severities, the least serious first.
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Error];

    /// Returns the severity as the config and JSON write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }

    /// Returns the severity of a name.
    pub fn parse(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Identifies a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleId {
    /// MS101
    BaselineTooSmall,
    /// MS102
    BaselineThin,
    /// MS104
    BaselineLarge,
    /// MS105
    BaselineBloated,
    /// MS107
    OverLimit,
    /// MS110
    BadEncoding,
    /// MS112
    HugeLine,
    /// MS113
    SizeJump,
    /// MS114
    TooManyLines,
    /// MS201
    MissingIdentity,
    /// MS202
    MissingRules,
    /// MS203
    RulesCount,
    /// MS204
    Coverage,
    /// MS207
    MissingMemorySystem,
    /// MS209
    EmptySection,
    /// MS211
    NoHeadings,
    /// MS213
    UnclosedFence,
    /// MS301
    VagueRule,
    /// MS305
    PlaceholderLeft,
    /// MS306
    PastedReference,
    /// MS308
    DuplicateRule,
    /// MS314
    SelfEditInvitation,
    /// MS401
    SeparatorMissing,
    /// MS402
    SeparatorAmbiguous,
    /// MS403
    TextAfterSeparator,
    /// MS405
    Drift,
    /// MS406
    StaleStatus,
    /// MS411
    DatedLog,
    /// MS412
    RawTranscript,
    /// MS601
    Secret,
    /// MS602
    AssignedSecret,
    /// MS701
    OverridePhrase,
    /// MS702
    StandingOrder,
    /// MS703
    Exfiltration,
    /// MS704
    RemoteExec,
    /// MS705
    AuthoritySpoof,
    /// MS706
    BoundarySpoof,
    /// MS707
    ZeroWidth,
    /// MS708
    Bidi,
    /// MS709
    TagCharacters,
    /// MS712
    TerminalControl,
    /// MS713
    EncodedBlob,
    /// MS714
    Secrecy,
    /// MS715
    RuleWaiver,
    /// MS804
    NameMismatch,
    /// MS806
    Seal,
    /// MS807
    BaselineWritableByAgent,
    /// MS808
    DuplicateMemory,
}

/// The part of the fleet that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleScope {
    /// The baseline file.
    Baseline,
    /// What the agent wrote below the separator.
    Scratch,
    /// The baseline file, and what the agent wrote.
    Whole,
    /// The live memory as a whole.
    Memory,
    /// More than one file, the config, the seal or file metadata.
    Fleet,
}

/// A rule: its identity, its usual severity and its explanation.
#[derive(Debug, Serialize)]
pub struct Rule {
    /// The identifier in the code.
    #[serde(skip)]
    pub rule: RuleId,
    /// The number, such as `MS402`.
    pub id: &'static str,
    /// The name, such as `separator-ambiguous`.
    pub name: &'static str,
    /// What it looks at.
    pub scope: RuleScope,
    /// The usual severity; a finding may have another one.
    pub severity: Severity,
    /// Whether it reads English words, and is not checked in other languages.
    pub is_english_only: bool,
    /// Whether a finding can refuse a reset.
    pub blocks_resets: bool,
    /// Share of its findings that are right: 1 for a fact, an estimate from real files for a rule
    /// that reads words.
    pub confidence: f64,
    /// When it fires.
    pub summary: &'static str,
    /// Why an operator wants to know.
    pub why: &'static str,
    /// What to do about it.
    pub help: &'static str,
}

impl RuleId {
    /// Returns the table's row of this rule.
    pub fn rule(self) -> &'static Rule {
        // The rows are in the order of the variants, which a test checks.
        &RULES[self as usize]
    }

    /// Returns the number, such as `MS402`.
    pub fn code(self) -> &'static str {
        self.rule().id
    }

    /// Returns the rule of a number or name, in any case of letters.
    pub fn parse(text: &str) -> Option<RuleId> {
        let is_named =
            |it: &&Rule| it.id.eq_ignore_ascii_case(text) || it.name.eq_ignore_ascii_case(text);
        RULES.iter().find(is_named).map(|it| it.rule)
    }
}

impl RuleId {
    /// Whether the rule looks for text that attacks the agent or its reader (7xx).
    pub(super) fn is_attack(self) -> bool {
        self.code().starts_with("MS7")
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// A row of the table; the builder methods override defaults.
const fn rule(
    rule: RuleId,
    (id, name): (&'static str, &'static str),
    (scope, severity): (RuleScope, Severity),
    summary: &'static str,
    why: &'static str,
    help: &'static str,
) -> Rule {
    Rule {
        rule,
        id,
        name,
        scope,
        severity,
        is_english_only: false,
        blocks_resets: false,
        confidence: 1.0,
        summary,
        why,
        help,
    }
}

impl Rule {
    /// Returns the entries of public lists of risks that the rule is about: `asi06` is memory and
    /// context poisoning in the OWASP list for agents.
    pub fn tags(&self) -> &'static [&'static str] {
        if self.rule.is_attack() {
            &["asi06"]
        } else {
            &[]
        }
    }

    const fn english_only(self) -> Rule {
        Rule {
            is_english_only: true,
            ..self
        }
    }

    const fn estimated(self, confidence: f64) -> Rule {
        Rule { confidence, ..self }
    }

    const fn blocking(self) -> Rule {
        Rule {
            blocks_resets: true,
            ..self
        }
    }
}

use RuleScope::{Baseline, Fleet, Memory, Scratch, Whole};
use Severity::{Error, Info, Warning};

/// All rules, in the order of their numbers.
#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    rule(RuleId::BaselineTooSmall, ("MS101", "baseline-too-small"), (Baseline, Error),
        "the baseline has fewer bytes than min_baseline_size",
        "A baseline that was cut short erases the agent's rules at the next reset, so resets refuse it.",
        "restore the file from version control or a backup; lower min_baseline_size if it is complete").blocking(),
    rule(RuleId::BaselineThin, ("MS102", "baseline-thin"), (Baseline, Info),
        "a baseline with a separator has less than 2048 bytes",
        "After a reset the agent knows only what the baseline says.",
        "add what the agent has to find out again after each reset, or set profile = tiny in [lint]"),
    rule(RuleId::BaselineLarge, ("MS104", "baseline-large"), (Baseline, Info),
        "the baseline has more than 20480 bytes",
        "Every session pays for the whole baseline, and each sentence competes with the rules.",
        "look for pasted reference, logs and repeated rules; point to documents instead"),
    rule(RuleId::BaselineBloated, ("MS105", "baseline-bloated"), (Baseline, Warning),
        "the baseline has more than 25600 bytes",
        "A file of this size usually contains documents that belong elsewhere, and the rules drown in them.",
        "move reference text into documents of its own, and point to them"),
    rule(RuleId::OverLimit, ("MS107", "over-limit"), (Whole, Warning),
        "a memory has more than max_memory_size bytes, or a baseline has by itself",
        "Many agents read only the first part of a large memory.",
        "reset the agent; if the baseline alone is too large, shorten it or raise max_memory_size"),
    rule(RuleId::BadEncoding, ("MS110", "bad-encoding"), (Whole, Error),
        "NUL or invalid UTF-8; lone carriage returns, mixed line ends, a byte order mark",
        "Tools disagree about such text: the agent may read something else than you do.",
        "save the file as UTF-8 with LF line ends; `lint --fix` corrects line ends and the byte order mark"),
    rule(RuleId::HugeLine, ("MS112", "huge-line"), (Whole, Warning),
        "a line has more than 2000 characters",
        "No reader gets through such a line, so text can hide in it, and differences show it as one change.",
        "wrap the line, or move the data out of the file"),
    rule(RuleId::SizeJump, ("MS113", "size-jump"), (Baseline, Warning),
        "the baseline is smaller than 0.7 of its sealed version, or larger than twice its size",
        "A version that shrinks that much has usually lost a section by accident.",
        "compare the versions with `memory-shepherd diff --baseline AGENT`"),
    rule(RuleId::TooManyLines, ("MS114", "too-many-lines"), (Whole, Error),
        "the text has more than 1048576 lines, and only these are checked",
        "The rest may hold anything.",
        "remove lines, or split the file"),
    rule(RuleId::MissingIdentity, ("MS201", "missing-identity"), (Baseline, Info),
        "neither a heading such as `Who I Am` nor a sentence such as `You are …` near the top",
        "An agent that does not know what it is takes its role from the next text it reads.",
        "say in the first lines what the agent is, for whom it works and what it does not do").english_only().estimated(0.7),
    rule(RuleId::MissingRules, ("MS202", "missing-rules"), (Baseline, Warning),
        "no section of rules or boundaries with a list",
        "What the agent must never do is the part of a baseline that a reset exists to protect.",
        "add a section `## Critical Rules` with five to seven rules that can be checked").english_only().estimated(0.8),
    rule(RuleId::RulesCount, ("MS203", "rules-count"), (Baseline, Info),
        "the section of rules has fewer than 2 or more than 15 items",
        "With twenty critical rules none is critical, and the agent weighs them against each other.",
        "merge rules, or move some to the tools that can enforce them").english_only(),
    rule(RuleId::Coverage, ("MS204", "coverage"), (Baseline, Info),
        "always: which of seven parts a baseline has",
        "Identity, rules, autonomy, capabilities, pointers, memory and team answer what an agent asks first.",
        "see docs/writing-baselines.md for each part; leave out what the agent does not need").english_only(),
    rule(RuleId::MissingMemorySystem, ("MS207", "missing-memory-system"), (Baseline, Warning),
        "no paragraph says that notes below the separator are archived and the rest is reset",
        "An agent that does not know of resets keeps its results in notes, and loses them.",
        "add two lines near the top: \"Write your own notes below the `---` line only. On a schedule those \
         notes are archived, and this file is reset to the baseline.\"").english_only().estimated(0.8),
    rule(RuleId::EmptySection, ("MS209", "empty-section"), (Baseline, Info),
        "a heading has no text below it",
        "Empty sections teach the agent that headings mean little.",
        "fill the section or remove the heading").estimated(0.7),
    rule(RuleId::NoHeadings, ("MS211", "no-headings"), (Baseline, Warning),
        "more than 2048 bytes with fewer than two headings",
        "Headings let an agent find a rule again, and let you see which section a change is in.",
        "divide the text into sections"),
    rule(RuleId::UnclosedFence, ("MS213", "unclosed-fence"), (Whole, Warning),
        "a code fence is open at the end of the file",
        "Everything behind it is code, also a separator: the boundary then lies elsewhere than you think.",
        "close the fence with a line of the same marks"),
    rule(RuleId::VagueRule, ("MS301", "vague-rule"), (Baseline, Info),
        "a rule with a phrase such as `be careful`, and without a path, command, number or name",
        "A rule that cannot be checked against a log binds no agent.",
        "say what you would look for in the log to see that the agent broke the rule").english_only().estimated(0.7),
    rule(RuleId::PlaceholderLeft, ("MS305", "placeholder-left"), (Baseline, Warning),
        "text that waits to be replaced; five or more, or the unchanged template, are an error",
        "A leftover placeholder is an instruction to a channel or path that does not exist.",
        "replace the placeholders, or delete the sentences around them").blocking().estimated(0.95),
    rule(RuleId::PastedReference, ("MS306", "pasted-reference"), (Baseline, Info),
        "a code block over 40 lines, a table over 30 rows or a paragraph over 1500 characters",
        "Pasted text is right on the day it is pasted; a pointer is right as long as its target is.",
        "keep the text in a document, and point to it"),
    rule(RuleId::DuplicateRule, ("MS308", "duplicate-rule"), (Baseline, Warning),
        "two list items say nearly the same",
        "Two wordings of a rule differ in some detail, and the agent follows the milder one.",
        "keep one of the two").estimated(0.9),
    rule(RuleId::SelfEditInvitation, ("MS314", "self-edit-invitation"), (Baseline, Warning),
        "a sentence that tells the agent to change the text above the separator",
        "The next reset takes the change away, and until then it shows as drift.",
        "tell the agent to write notes below the separator, and to report a wrong rule to you").estimated(0.8),
    rule(RuleId::SeparatorMissing, ("MS401", "separator-missing"), (Whole, Warning),
        "no separator line; of a memory whose baseline has one, an error",
        "Without a separator a reset cannot keep rules and notes apart, and replaces the whole file.",
        "add the separator on a line of its own, with empty lines around it; or set shared = no for the agent"),
    rule(RuleId::SeparatorAmbiguous, ("MS402", "separator-ambiguous"), (Whole, Info),
        "several lines match the separator",
        "The last one is the boundary. A line that the agent adds may be taken for it once the memory drifts.",
        "use `***` for the other thematic breaks"),
    rule(RuleId::TextAfterSeparator, ("MS403", "text-after-separator"), (Baseline, Error),
        "text behind the last separator, other than a heading of notes",
        "That text is scratch: the agent may change it, and no reset reports the change as drift.",
        "move the text above the last separator, or use `***` for that thematic break"),
    rule(RuleId::Drift, ("MS405", "drift"), (Memory, Error),
        "the memory differs above the boundary from the pushed version",
        "The agent's rules were changed in its memory; a reset restores them.",
        "read the difference with `memory-shepherd diff AGENT`, then reset the agent"),
    rule(RuleId::StaleStatus, ("MS406", "stale-status"), (Baseline, Warning),
        "headings of a status, such as `In Progress`; ticked boxes; three or more dated headings",
        "Status goes stale on the first day, and every reset brings the stale text back.",
        "keep status in scratch or in a tracker").english_only().estimated(0.9),
    rule(RuleId::DatedLog, ("MS411", "dated-log"), (Baseline, Warning),
        "three or more headings have a date",
        "A diary in the baseline comes back with every reset, and grows until no one can read it.",
        "keep the rule that an event led to, and move the story elsewhere").estimated(0.9),
    rule(RuleId::RawTranscript, ("MS412", "raw-transcript"), (Scratch, Info),
        "four or more lines such as `User: …` or `Assistant: …`",
        "Transcripts carry other people's text, and its instructions, into the memory.",
        "read the transcript before the agent does; keep conclusions instead").estimated(0.8),
    rule(RuleId::Secret, ("MS601", "secret"), (Whole, Error),
        "text that has the shape of a key, token or password in an address",
        "Memories are archived, backed up and sent to a model.",
        "revoke the secret and replace it by the name of the tool or variable that holds it").estimated(0.95),
    rule(RuleId::AssignedSecret, ("MS602", "assigned-secret"), (Whole, Warning),
        "a value that looks like a secret behind a word such as `password`",
        "Memories are archived, backed up and sent to a model.",
        "if it is a secret, revoke it and name the tool or variable that holds it").estimated(0.8),
    rule(RuleId::OverridePhrase, ("MS701", "override-phrase"), (Whole, Error),
        "a phrase that tells the agent to drop its instructions, or the markup of a chat template",
        "Text from outside reaches an agent through its notes, and stays there.",
        "find out where the line came from before the agent reads it again").english_only().estimated(0.8),
    rule(RuleId::StandingOrder, ("MS702", "standing-order"), (Scratch, Info),
        "an order to the agent's future self, with a trigger and an action",
        "A standing order in the notes is a rule that the operator did not write.",
        "move it into the baseline if you want it, or let the reset remove it").english_only().estimated(0.5),
    rule(RuleId::Exfiltration, ("MS703", "exfiltration"), (Whole, Error),
        "a line that sends a secret to a public address",
        "An agent that follows this line gives its credentials away.",
        "treat it as an incident: find its origin, and rotate what it names").estimated(0.8),
    rule(RuleId::RemoteExec, ("MS704", "remote-exec"), (Whole, Warning),
        "a line that runs code from the network or hidden code",
        "An agent that runs this line runs whatever the other side sends that day.",
        "name a pinned version with its checksum, or an internal mirror").estimated(0.9),
    rule(RuleId::AuthoritySpoof, ("MS705", "authority-spoof"), (Whole, Error),
        "text that claims to come from the operator, or to be part of the baseline",
        "Only the baseline speaks for the operator; a note that claims to is an attack or a mistake.",
        "find out who wrote it; put real orders into the baseline").english_only().estimated(0.8),
    rule(RuleId::BoundarySpoof, ("MS706", "boundary-spoof"), (Whole, Error),
        "a disguised separator, or the heading of a protected section among the notes",
        "An agent may take what follows for its rules.",
        "let a reset remove it, and find its origin").estimated(0.9),
    rule(RuleId::ZeroWidth, ("MS707", "zero-width"), (Whole, Warning),
        "characters without width; four or more in a row are an error",
        "They do not show, and can hide a message or split a word that a filter looks for.",
        "delete them; every place is listed by line and column"),
    rule(RuleId::Bidi, ("MS708", "bidi"), (Whole, Error),
        "control characters that change the direction of text",
        "They make text appear in another order than the agent reads it.",
        "delete them; set profile = right-to-left in [lint] for a fleet that writes such scripts"),
    rule(RuleId::TagCharacters, ("MS709", "tag-characters"), (Whole, Error),
        "tag characters, or long runs of variation selectors",
        "They spell out text that no one sees and that a model reads.",
        "delete them, and treat their text as an attack"),
    rule(RuleId::TerminalControl, ("MS712", "terminal-control"), (Whole, Error),
        "control sequences of terminals; colours alone are a warning",
        "Printed to a terminal, they can change what the operator sees.",
        "strip them where the agent stores the output of programs"),
    rule(RuleId::EncodedBlob, ("MS713", "encoded-blob"), (Whole, Error),
        "base64 or hexadecimal that decodes to text which rule 701, 703 or 704 reports",
        "Encoding keeps the text from readers and filters, and a model decodes it.",
        "treat it as an attack: find its origin").estimated(0.95),
    rule(RuleId::Secrecy, ("MS714", "secrecy"), (Whole, Error),
        "a sentence that keeps the operator or the user in the dark",
        "An agent that hides its doings from its operator is out of control.",
        "find out who wrote it").english_only().estimated(0.8),
    rule(RuleId::RuleWaiver, ("MS715", "rule-waiver"), (Scratch, Warning),
        "a note that declares a rule, approval or limit void",
        "Only the baseline can lift a rule; a note that does so outlives the reason for it.",
        "change the baseline if the rule is obsolete, or let the reset remove the note").estimated(0.7),
    rule(RuleId::NameMismatch, ("MS804", "name-mismatch"), (Fleet, Info),
        "the baseline names itself as another configured agent",
        "A copied baseline gives one agent the identity of another.",
        "correct the name in the baseline, or `baseline` in the config").estimated(0.8),
    rule(RuleId::Seal, ("MS806", "seal"), (Fleet, Error),
        "the baseline does not match its seal, or a required seal is missing",
        "A tampered baseline would reach every agent that uses it, so resets refuse it.",
        "review the change with `memory-shepherd diff --baseline AGENT`, then restore or seal the file").blocking(),
    rule(RuleId::BaselineWritableByAgent, ("MS807", "baseline-writable-by-agent"), (Fleet, Warning),
        "the agent's user can write the baseline or a directory above it",
        "An agent that can edit its baseline writes its own rules.",
        "give the file and its directories to another user, without write access for the agent"),
    rule(RuleId::DuplicateMemory, ("MS808", "duplicate-memory"), (Fleet, Error),
        "two agents share a memory file or an archive directory",
        "A reset of one would give the other a foreign identity, or mix up their notes, so resets refuse it.",
        "give each agent a file and a directory of its own in the config").blocking(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_variants() {
        for (index, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.rule as usize, index, "{}", rule.id);
            assert_eq!(rule.rule.rule().id, rule.id);
        }
    }

    #[test]
    fn rules_have_unique_names_and_sorted_numbers() {
        for pair in RULES.windows(2) {
            assert!(pair[0].id < pair[1].id, "{} {}", pair[0].id, pair[1].id);
        }
        for rule in RULES {
            assert_eq!(RuleId::parse(rule.name), Some(rule.rule));
            assert_eq!(RuleId::parse(&rule.id.to_lowercase()), Some(rule.rule));
        }
        assert_eq!(RuleId::parse("MS999"), None);
    }
}
