//! Numbers and sizes in words.

/// Formats a number with its noun, as `1 line`, `2 lines` or `2 entries`.
pub fn format_count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => match noun.strip_suffix("ry") {
            Some(noun) => format!("{number} {noun}ries"),
            None => format!("{number} {noun}s"),
        },
    }
}

/// How many names a sentence lists.
pub const MAX_LISTED_NAMES: usize = 5;

/// Lists names for a sentence, a handful of them: `a, b`, `a, b, c, d, e and 7 more`.
pub fn list_names(names: &[&str]) -> String {
    let shown = names[..names.len().min(MAX_LISTED_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats a number of bytes for columns: `812`, `14.1K`, `3.2M`. K is 1024 bytes.
pub fn format_size(bytes: u64) -> String {
    match scale(bytes) {
        (value, Some(unit)) => format!("{value:.1}{unit}"),
        (_, None) => bytes.to_string(),
    }
}

/// Formats a number of bytes with its unit, exactly below 1024: `812 B`, `14.1K`.
pub fn format_exact_size(bytes: u64) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        _ => format_size(bytes),
    }
}

/// Formats a number of bytes for sentences: `812 bytes`, `14.1 KB`, `3.2 MB`. A KB has 1024 bytes.
pub fn describe_size(bytes: u64) -> String {
    match scale(bytes) {
        (value, Some(unit)) => format!("{value:.1} {unit}B"),
        (_, None) => format_count(bytes, "byte"),
    }
}

/// Formats a time span for sentences, with its two largest units: `40 s`, `12 min`, `3 h 12 min`,
/// `2 d 4 h`.
pub fn describe_duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// Formats an age for columns, in its largest unit: `<1m`, `1m`, `45m`, `2h`, `3d`. Minutes are rounded
/// down to a multiple of `minute_step`, but not to 0.
pub fn format_age(seconds: i64, minute_step: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (minutes, hours) {
        (..1, _) => "<1m".to_string(),
        (_, 0) => format!("{}m", (minutes / minute_step * minute_step).max(1)),
        (_, 1..24) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

/// Returns a number of bytes in the largest unit in which it is at least 1; none below 1024 bytes.
fn scale(bytes: u64) -> (f64, Option<char>) {
    let mut value = bytes as f64;
    let mut found = None;
    for unit in ['K', 'M', 'G', 'T'] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        found = Some(unit);
    }
    (value, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_right_plural() {
        let counts = [0, 1, 2].map(|number| format_count(number, "entry"));
        assert_eq!(counts, ["0 entries", "1 entry", "2 entries"]);
        assert_eq!(format_count(3, "day"), "3 days");
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        assert_eq!(list_names(&[]), "");
        assert_eq!(list_names(&["a", "b", "c", "d", "e"]), "a, b, c, d, e");
        assert_eq!(list_names(&["a"; 7]), "a, a, a, a, a and 2 more");
    }

    #[test]
    fn durations_have_two_units() {
        let spans = [59, 60, 11_520, 187_200].map(describe_duration);
        assert_eq!(spans, ["59 s", "1 min", "3 h 12 min", "2 d 4 h"]);
    }

    #[test]
    fn ages_are_rounded_down() {
        let ages = |step| [-5, 59, 60, 299, 3599, 7199, 90_000].map(|it| format_age(it, step));
        assert_eq!(ages(1), ["<1m", "<1m", "1m", "4m", "59m", "1h", "1d"]);
        assert_eq!(ages(5), ["<1m", "<1m", "1m", "1m", "55m", "1h", "1d"]);
    }

    #[test]
    fn sizes_have_one_decimal_from_1024_bytes_on() {
        let sizes = [1023, 1024, 14_438, 3 << 20, 5 << 30, 2048 << 40];
        let formatted = sizes.map(format_size);
        assert_eq!(
            formatted,
            ["1023", "1.0K", "14.1K", "3.0M", "5.0G", "2048.0T"]
        );
        assert_eq!([1, 1024].map(format_exact_size), ["1 B", "1.0K"]);
        assert_eq!(describe_size(1), "1 byte");
        assert_eq!(describe_size(1900), "1.9 KB");
    }
}
