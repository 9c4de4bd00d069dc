//! What searches find of a labelled set of notes: recall at 10 and mean reciprocal rank, with and
//! without the leg for similar words, printed as a table.

use std::collections::HashSet;
use std::fs;

use memory_shepherd::archive::index::CandidateOrder;
use memory_shepherd::archive::search::Query;
use memory_shepherd::engine::{Engine, SearchRequest};

use super::world::World;

/// Notes, one entry each.
const NOTES: &[&str] = &[
    "token refresh loops in the auth module, session cookie is never rotated",
    "certificate of the carrier gateway renewed at 01:00, expires in ninety days",
    "deploy of billing frozen until the ledger migration has finished",
    "queue depth on avocet grows since 02:40, consumers restarted twice",
    "disk on the archive host at 91 percent, retention deletes nothing yet",
    "engineer paused the avocet feed at 03:04, lag stops growing",
    "PR #42 approved, waiting for the pipeline on the runner pool",
    "customer reports duplicate invoices for march, accounting informed",
    "backup of the database failed with a timeout, retried by hand",
    "the webhook endpoint answers 503 after the failover drill",
    "memory of the parser grows by forty megabytes an hour, restart scheduled",
    "new hire asks for access to staging, request forwarded to security",
    "flaky test in the scheduler suite, it depends on the wall clock",
    "dns records of the old cluster removed, two monitors still point there",
    "the vendor changed the schema of the shipment events without notice",
    "rate limit of the geocoder hit at noon, requests now batched",
    "incident review moved to thursday, timeline is complete",
    "feature flag for parallel imports enabled for ten percent of merchants",
    "translations of the portal are missing in danish and finnish",
    "password reset mails land in spam, sender policy adjusted",
    "kernel update on the edge nodes needs a reboot window on sunday",
    "load balancer drops websocket connections after sixty seconds",
    "replica lag during the nightly vacuum, analysts complain about stale numbers",
    "the crawler ignores robots rules of two partners, throttled for now",
    "checkout latency doubled since the tax service was upgraded",
    "ssh host key of the bastion changed, verified with the operations team",
    "log rotation is broken on the mail relay, files reach nine gigabytes",
    "the importer rejects dates before 1970, patched with a guard",
    "onboarding guide describes a command that no longer exists",
    "coupons can be redeemed twice when two tabs are open",
    "thermal alarm in rack seven, fans replaced by the technician",
    "elastic index rebuilt, search in the portal is fast again",
    "retry storm against the payment provider, backoff was configured wrong",
    "the warehouse scanner sends barcodes without check digit",
    "archive of the support mailbox exported for the lawyers",
    "currency rounding differs by one cent between cart and invoice",
    "two agents edited the same runbook, merged by hand",
    "permissions of the upload bucket were public, closed at once",
    "cache of the product images purged after the rebrand",
    "container image contains a vulnerable openssl, rebuild triggered",
    "survey results show that merchants want a dark theme",
    "the report generator crashes on empty quarters",
    "vpn tunnel to the factory flaps every night at two",
    "sandbox keys were committed to the repository, revoked and rewritten",
    "autoscaling adds machines too late in the morning peak",
    "message ordering is lost when a partition is reassigned",
    "the mobile app shows prices of yesterday while offline",
    "audit asks who approved the firewall exception in february",
];

/// Queries of one kind, each with the notes that it is about.
struct QuerySet {
    kind: &'static str,
    queries: &'static [(&'static str, &'static [usize])],
}

const QUERY_SETS: &[QuerySet] = &[
    QuerySet {
        kind: "exact",
        queries: &[
            ("token refresh", &[0]),
            ("certificate gateway", &[1]),
            ("billing frozen", &[2]),
            ("avocet", &[3, 5]),
            ("retention", &[4]),
            ("PR #42", &[6]),
            ("duplicate invoices", &[7]),
            ("database timeout", &[8]),
            ("webhook 503", &[9]),
            ("flaky scheduler", &[12]),
            ("rate limit geocoder", &[15]),
            ("spam sender", &[19]),
            ("websocket", &[21]),
            ("replica lag", &[22]),
            ("host key bastion", &[25]),
            ("payment backoff", &[32]),
            ("bucket public", &[37]),
            ("openssl", &[39]),
            ("vpn factory", &[42]),
            ("partition", &[45]),
        ],
    },
    QuerySet {
        kind: "misspelt",
        queries: &[
            ("tokne refresh", &[0]),
            ("certifcate gateway", &[1]),
            ("deply frozen", &[2]),
            ("avoect", &[3, 5]),
            ("retenton", &[4]),
            ("aproved pipeline", &[6]),
            ("duplcate invoices", &[7]),
            ("databse timeout", &[8]),
            ("webhok", &[9]),
            ("schedulr flaky", &[12]),
            ("geocodr", &[15]),
            ("pasword spam", &[19]),
            ("websockt", &[21]),
            ("replcia lag", &[22]),
            ("bastoin", &[25]),
            ("paymnet provider", &[32]),
            ("permisions bucket", &[37]),
            ("vulnerabel", &[39]),
            ("tunel factory", &[42]),
            ("partiton", &[45]),
        ],
    },
    QuerySet {
        kind: "inflected",
        queries: &[
            ("tokens refreshed", &[0]),
            ("certificates renewing", &[1]),
            ("migrations finish", &[2]),
            ("consumer restarting", &[3]),
            ("retentions delete", &[4]),
            ("pausing feeds", &[5]),
            ("invoice duplicates", &[7]),
            ("backups failing", &[8]),
            ("endpoints answering", &[9]),
            ("tests depending", &[12]),
            ("limits hits", &[15]),
            ("translation missing", &[18]),
            ("connection dropped", &[21]),
            ("analyst complaining", &[22]),
            ("rotations broken", &[26]),
            ("configuring retries", &[32]),
            ("permission closing", &[37]),
            ("rebuilding images", &[39]),
            ("revoking key", &[43]),
            ("messages reassigning", &[45]),
        ],
    },
    QuerySet {
        kind: "paraphrased",
        queries: &[
            ("login keeps renewing itself", &[0]),
            ("tls expiry of the shipping edge", &[1]),
            ("releases on hold", &[2]),
            ("backlog in the broker", &[3]),
            ("storage nearly full", &[4]),
            ("charged twice", &[7]),
            ("snapshot did not complete", &[8]),
            ("http errors since the switch to standby", &[9]),
            ("leak in the reader process", &[10]),
            ("unstable unit test", &[12]),
            ("location lookups throttled", &[15]),
            ("mail goes to junk", &[19]),
            ("sockets closed after a minute", &[21]),
            ("slow payment page", &[24]),
            ("jump server fingerprint", &[25]),
            ("hammering the card processor", &[32]),
            ("storage open to the world", &[37]),
            ("leaked secrets in git", &[43]),
            ("scale out comes late", &[44]),
            ("events out of sequence", &[45]),
        ],
    },
];

/// Recall at 10 and mean reciprocal rank, in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Quality {
    recall: f64,
    reciprocal_rank: f64,
}

fn number_of(path: &std::path::Path) -> usize {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    // The number is in the minutes and hours of the name.
    let hours: usize = name[11..13].parse().unwrap();
    let minutes: usize = name[13..15].parse().unwrap();
    hours * 60 + minutes
}

/// Returns the quality of a set of queries, with and without similar words.
fn measure(engine: &Engine, set: &QuerySet) -> [Quality; 2] {
    let mut quality = [Quality::default(); 2];
    for (text, relevant) in set.queries {
        let request = SearchRequest {
            query: Query::parse(&format!("{text} in:archive"), engine.clock().now()).unwrap(),
            order: CandidateOrder::Relevance,
            limit: 10,
            max_lines: 1,
            reads_remote: false,
        };
        let found = engine.search().search_archive(&request, &|| true).unwrap();
        let relevant: HashSet<usize> = relevant.iter().copied().collect();
        for (at, quality) in quality.iter_mut().enumerate() {
            let entries = found.entries.iter().filter(|found| {
                let similarity = found.text.as_ref().unwrap().similarity;
                at == 1 || similarity == 1.0
            });
            let numbers: Vec<usize> = entries.map(|found| number_of(&found.entry.path)).collect();
            let hits = numbers.iter().filter(|it| relevant.contains(it)).count();
            let first = numbers.iter().position(|it| relevant.contains(it));
            let count = set.queries.len() as f64 / 100.0;
            quality.recall += hits as f64 / relevant.len() as f64 / count;
            quality.reciprocal_rank += first.map_or(0.0, |at| 1.0 / (at + 1) as f64) / count;
        }
    }
    quality
}

#[test]
fn similar_words_raise_recall_of_misspelt_queries() {
    let world = World::new(&["scout"]);
    let directory = world.archive_directory().join("scout");
    fs::create_dir_all(&directory).unwrap();
    for (number, note) in NOTES.iter().enumerate() {
        let name = format!("2025-01-02_{:02}{:02}.md", number / 60, number % 60);
        fs::write(directory.join(name), format!("- {note}\n")).unwrap();
    }
    let engine = world.engine();
    engine.search().update_index(&mut |_| true).unwrap();
    println!(
        "{:12} {:>8} {:>8} {:>8} {:>8}",
        "", "recall", "with", "MRR", "with"
    );
    for set in QUERY_SETS {
        let [exact, similar] = measure(&engine, set);
        println!(
            "{:12} {:8.1} {:8.1} {:8.1} {:8.1}",
            set.kind, exact.recall, similar.recall, exact.reciprocal_rank, similar.reciprocal_rank
        );
        let gain = similar.recall - exact.recall;
        match set.kind {
            "exact" => {
                assert!(similar.recall >= exact.recall);
                assert!(similar.reciprocal_rank >= exact.reciprocal_rank);
                assert!(exact.recall >= 99.9, "{exact:?}");
            }
            "misspelt" | "inflected" => assert!(gain >= 20.0, "{}: {gain}", set.kind),
            _ => {}
        }
    }
}
