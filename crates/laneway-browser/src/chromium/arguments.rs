//! The command line and the environment of Chromium.

use std::ffi::OsString;
use std::path::Path;

use super::launch::{LaunchError, LaunchOptions};

/// What every browser is started with: no first start, no calls home, no extensions, and tabs in the background are not slowed down.
const ALWAYS: [&str; 23] = [
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-extensions",
    "--disable-quic",
    "--disable-breakpad",
    "--disable-search-engine-choice-screen",
    "--disable-session-crashed-bubble",
    "--hide-crash-restore-bubble",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    "--disable-ipc-flooding-protection",
    "--disable-features=Translate,MediaRouter,OptimizationHints,AutofillServerCommunication,CertificateTransparencyComponentUpdater",
    "--metrics-recording-only",
    "--password-store=basic",
    "--mute-audio",
];
/// Chromium crashes with less shared memory, in bytes. Containers often have 64 MiB.
const SHARED_MEMORY_MIN: u64 = 1 << 30;
/// Width and height of a window, in pixels.
const WINDOW: std::ops::RangeInclusive<u32> = 100..=10_000;

/// The arguments for these options.
pub(super) fn of(options: &LaunchOptions, data_dir: &Path, proxy_server: Option<&str>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ALWAYS.iter().map(OsString::from).collect();
    let mut add = |argument: String| arguments.push(argument.into());
    if options.headless {
        add("--headless=new".to_owned());
        add("--disable-gpu".to_owned());
    }
    if rustix::process::geteuid().is_root() {
        // The sandbox does not work for root.
        add("--no-sandbox".to_owned());
    }
    if has_little_shared_memory() {
        add("--disable-dev-shm-usage".to_owned());
    }
    if let Some((width, height)) = options.window {
        add(format!("--window-size={width},{height}"));
    }
    if let Some(agent) = &options.user_agent {
        add(format!("--user-agent={agent}"));
    }
    if let Some(locale) = &options.locale {
        add(format!("--lang={locale}"));
        add(format!("--accept-lang={locale}"));
    }
    if let Some(proxy) = proxy_server {
        add(format!("--proxy-server={proxy}"));
        // Otherwise calls between browsers go around the proxy.
        add("--force-webrtc-ip-handling-policy=disable_non_proxied_udp".to_owned());
    }
    let mut directory = OsString::from("--user-data-dir=");
    directory.push(data_dir);
    arguments.push(directory);
    arguments.push("about:blank".into());
    arguments
}

/// The folder of a data directory for reports of crashes.
pub(super) const CRASH_REPORTS: &str = "Crash Reports";

/// The variables for these options.
pub(super) fn environment_of(options: &LaunchOptions, data_dir: &Path) -> Vec<(&'static str, OsString)> {
    // Reports of crashes would go to the user's own configuration. Chromium does not work without the handler of crashes.
    let mut variables = vec![("BREAKPAD_DUMP_LOCATION", data_dir.join(CRASH_REPORTS).into())];
    if let Some(time_zone) = &options.time_zone {
        variables.push(("TZ", time_zone.into()));
    }
    if let Some(locale) = &options.locale {
        variables.push(("LANGUAGE", locale.replace('-', "_").into()));
    }
    variables
}

fn has_little_shared_memory() -> bool {
    rustix::fs::statvfs("/dev/shm").is_ok_and(|memory| memory.f_bavail * memory.f_frsize < SHARED_MEMORY_MIN)
}

impl LaunchOptions {
    /// Checks what is passed on to Chromium, which ignores what it does not understand.
    pub(super) fn check(&self) -> Result<(), LaunchError> {
        let bad = |field, reason: String| Err(LaunchError::BadOption { field, reason });
        if let Some((width, height)) = self.window
            && !(WINDOW.contains(&width) && WINDOW.contains(&height))
        {
            let (min, max) = WINDOW.into_inner();
            return bad("window", format!("{width}x{height}: both must be from {min} to {max}"));
        }
        if let Some(agent) = &self.user_agent
            && (agent.is_empty() || agent.len() > 512 || agent.chars().any(char::is_control))
        {
            return bad("user_agent", "it must have 1 to 512 printable letters".to_owned());
        }
        let is_name = |name: &str, others: &str| {
            (2..=64).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
        };
        if let Some(locale) = &self.locale
            && !is_name(locale, "-")
        {
            return bad("locale", format!("{locale:?}: give a language such as de or de-DE"));
        }
        if let Some(time_zone) = &self.time_zone
            && (!is_name(time_zone, "_+-/") || time_zone.contains("//"))
        {
            return bad("time_zone", format!("{time_zone:?}: give a name such as Europe/Berlin"));
        }
        if self.data_dir.as_os_str().is_empty() {
            return bad("data_dir", "it is empty".to_owned());
        }
        Ok(())
    }
}
