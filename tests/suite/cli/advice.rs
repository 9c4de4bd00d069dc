//! What is said when something is wrong: the path, the cause, and what to do
//! that works.

use std::os::unix::fs::symlink;

use super::*;

/// Every verb that comes to the archive says so of the path that the config
/// leads to, and names the one to write instead.
#[test]
fn a_link_above_the_archive_is_named_with_the_real_path() {
    let site = busy();
    fs::create_dir_all(site.path("dotfiles/shepherd")).unwrap();
    symlink("../dotfiles", site.path("home/.config")).unwrap();
    let config = site.read("memory-shepherd.conf");
    for (folder, real) in [
        // The archive is to be made in a folder that exists,
        ("home/.config", "dotfiles/archives"),
        ("home/.config/shepherd", "dotfiles/shepherd/archives"),
        // and in one that does not.
        ("home/.config/a/b", "dotfiles/a/b/archives"),
    ] {
        let path = format!("{}/{folder}/archives", site.dir.display());
        let real = format!("{}/{real}", site.dir.display());
        site.write(
            "memory-shepherd.conf",
            config.replace("archive_dir=./archives", &format!("archive_dir={path}")),
        );
        let ran = site.run(["reset", "--all"]).code(3);
        assert!(!ran.out.contains("sweeping"), "{}", ran.out);
        assert!(!ran.err.contains("levels"), "{}", ran.err);
        let _ = ran
            .warns(&format!("{path} goes through a symbolic link"))
            .warns(&format!(
                "hint: write the real path in the configuration: {real}\n"
            ));
        let _ = site
            .run(["archive", "list", "code-reviewer"])
            .code(3)
            .warns(&format!("{real}/code-reviewer\n"));
        let _ = site
            .run(["doctor"])
            .code(1)
            .says("is reached through a link")
            .says(&format!("the config: {real}\n"));
        // What it says, works.
        site.write(
            "memory-shepherd.conf",
            config.replace("archive_dir=./archives", &format!("archive_dir={real}")),
        );
        let _ = site.run(["reset", "--all"]).code(0);
        fs::remove_dir_all(&real).unwrap();
        site.append(REVIEWER, "- a note\n");
    }
}

#[test]
fn a_config_that_is_reached_through_a_link_leads_to_the_real_archive() {
    let site = busy();
    let elsewhere = Site::new();
    symlink(&site.dir, elsewhere.path("link")).unwrap();
    let _ = elsewhere
        .run(["--config", "link/memory-shepherd.conf", "reset", "--all"])
        .warns("link/archives goes through a symbolic link")
        .warns(&format!("configuration: {}/archives\n", site.dir.display()));
}
