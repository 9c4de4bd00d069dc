//! A table of figures: a column for each size, the growth between two sizes behind it.

/// Width of the name of a figure.
const NAME_WIDTH: usize = 38;

pub struct Table {
    title: String,
    sizes: Vec<usize>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    unit: &'static str,
    /// The figure at each size, as far as it was measured.
    values: Vec<Option<f64>>,
    /// Upper bound at the largest size.
    budget: Option<f64>,
}

impl Table {
    pub fn new(title: &str, sizes: Vec<usize>) -> Table {
        Table {
            title: title.to_string(),
            sizes,
            rows: Vec::new(),
        }
    }

    /// Adds a figure at one size, with its budget at the largest one.
    pub fn add(
        &mut self,
        name: &str,
        unit: &'static str,
        size: usize,
        value: f64,
        budget: Option<f64>,
    ) {
        println!("    {size} agents: {name} {value:.2} {unit}");
        let place = self.sizes.iter().position(|it| *it == size);
        let place = place.expect("a size of the table");
        let known = self.rows.iter().position(|row| row.name == name);
        let row = known.unwrap_or_else(|| {
            self.rows.push(Row {
                name: name.to_string(),
                unit,
                values: vec![None; self.sizes.len()],
                budget,
            });
            self.rows.len() - 1
        });
        self.rows[row].values[place] = Some(value);
        self.rows[row].budget = budget;
    }

    /// Adds the median and the 99th percentile of delays in milliseconds.
    pub fn add_delays(&mut self, name: &str, size: usize, delays: Vec<f64>, budgets: [f64; 2]) {
        let delays = super::measure::sorted(delays);
        for (part, budget) in [50, 99].into_iter().zip(budgets) {
            let value = super::measure::share(&delays, part);
            self.add(&format!("{name}, p{part}"), "ms", size, value, Some(budget));
        }
    }

    /// Prints the table in Markdown.
    pub fn print(&self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("\n### {} (load {})\n", self.title, load.trim());
        let mut heads = format!("| {:<NAME_WIDTH$} |", "figure");
        let mut rule = format!("|{:-<1$}|", "", NAME_WIDTH + 2);
        for (place, size) in self.sizes.iter().enumerate() {
            if place > 0 {
                heads.push_str("  growth |");
                rule.push_str("--------:|");
            }
            heads.push_str(&format!(" {size:>12} |"));
            rule.push_str("-------------:|");
        }
        println!("{heads}       budget | verdict |\n{rule}-------------:|---------|");
        for row in &self.rows {
            println!("{}", self.line(row));
        }
    }

    fn line(&self, row: &Row) -> String {
        let mut line = format!("| {:<NAME_WIDTH$} |", row.name);
        for (place, value) in row.values.iter().enumerate() {
            if place > 0 {
                let before = row.values[place - 1];
                let growth = before.zip(*value).map(|(before, value)| value / before);
                let growth = growth.map_or("-".to_string(), |it| format!("x {it:.1}"));
                line.push_str(&format!(" {growth:>7} |"));
            }
            let text = value.map_or("-".to_string(), |it| format!("{it:.2} {}", row.unit));
            line.push_str(&format!(" {text:>12} |"));
        }
        let budget = row.budget.map(|most| format!("<= {most} {}", row.unit));
        let last = row.values.last().copied().flatten();
        let verdict = match last.zip(row.budget) {
            Some((value, most)) if value > most => "OVER",
            Some(_) => "ok",
            None => "",
        };
        line + &format!(" {:>12} | {verdict:<7} |", budget.unwrap_or_default())
    }
}
