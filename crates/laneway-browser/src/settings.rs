//! The section `[browsers]` of the configuration, and the lanes, kinds and keys that belong to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::{Role, Span};
use laneway_runtime::config::{
    Config, EntryValue, FixedSection, SPAN_MAX, Section, SectionEntry, format_span,
};
use reqwest::Url;

/// The section, for the schema of the configuration.
pub static BROWSERS: FixedSection = FixedSection {
    name: NAME,
    defaults: include_str!("../browsers.default.toml"),
    read,
    lanes: &[crate::kinds::LANE],
};

/// The name of the section.
const NAME: &str = "browsers";
/// Most browsers that a limit may allow: each costs a hundred megabytes and more.
const OPEN_MAX: u32 = 10_000;

/// The values of the section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSettings {
    /// The program. `None`: it is searched for.
    pub chromium: Option<PathBuf>,
    /// The directory of the profiles. `None`: below the data directory of the server.
    pub data_dir: Option<PathBuf>,
    /// True: browsers have no window.
    pub headless: bool,
    /// True: pages may save files.
    pub allow_downloads: bool,
    /// True: actions and scripts may open file URLs.
    pub allow_file_urls: bool,
    /// The weakest role that may run code in pages.
    pub script_role: Role,
    /// The programs that jobs may run.
    pub programs: Vec<PathBuf>,
    /// Most open browsers of all tenants together.
    pub open_max: u32,
    /// How long a browser may take to close.
    pub stop_grace: Duration,
    /// How long a profile stays in the recycle bin.
    pub recycle_bin_retention: Span,
    /// What the test of a proxy requests.
    pub proxy_test_url: Url,
}

impl BrowserSettings {
    /// The values of a configuration. `None`: the program has not contributed the section.
    pub fn of(config: &Config) -> Option<&BrowserSettings> {
        config.section(NAME)
    }

    /// True when a caller of this role may run code in pages.
    pub fn may_script(&self, role: Role) -> bool {
        match self.script_role {
            Role::Admin => role == Role::Admin,
            Role::Operator => matches!(role, Role::Admin | Role::Operator),
            _ => matches!(role, Role::Admin | Role::Operator | Role::Submitter),
        }
    }
}

impl SectionEntry for BrowserSettings {
    fn values(&self) -> Vec<(&'static str, EntryValue)> {
        let path = |path: &Option<PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => String::new(),
        };
        let BrowserSettings {
            chromium,
            data_dir,
            headless,
            allow_downloads,
            allow_file_urls,
            script_role,
            programs,
            open_max,
            stop_grace,
            recycle_bin_retention,
            proxy_test_url,
        } = self;
        let programs: Vec<String> = programs.iter().map(|path| path.display().to_string()).collect();
        let grace = Span(u64::try_from(stop_grace.as_millis()).unwrap_or(u64::MAX));
        vec![
            ("chromium", EntryValue::Plain(path(chromium).into())),
            ("data_dir", EntryValue::Plain(path(data_dir).into())),
            ("headless", EntryValue::Plain((*headless).into())),
            ("allow_downloads", EntryValue::Plain((*allow_downloads).into())),
            ("allow_file_urls", EntryValue::Plain((*allow_file_urls).into())),
            ("script_role", EntryValue::Plain(script_role.as_str().into())),
            ("programs", EntryValue::Plain(programs.into())),
            ("open_max", EntryValue::Plain((*open_max).into())),
            ("stop_grace", EntryValue::Plain(format_span(grace).into())),
            ("recycle_bin_retention", EntryValue::Plain(format_span(*recycle_bin_retention).into())),
            ("proxy_test_url", EntryValue::Plain(proxy_test_url.as_str().into())),
        ]
    }
}

fn read(section: &Section<'_>) -> Arc<dyn SectionEntry> {
    let path = |key| Some(section.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from);
    let roles = [Role::Operator, Role::Admin, Role::Submitter].map(|role| (role.as_str(), role));
    let programs: Vec<PathBuf> = section.texts("programs").into_iter().map(PathBuf::from).collect();
    for program in programs.iter().filter(|program| !program.is_absolute()) {
        let message = format!("holds {}; write absolute paths, such as \"/usr/bin/node\"", program.display());
        section.problem("programs", message);
    }
    let url = section.text("proxy_test_url");
    let parsed = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    if parsed.is_none() {
        let message = format!("is {url:?}; write an http or https URL, such as \"https://example.com/\"");
        section.problem("proxy_test_url", message);
    }
    Arc::new(BrowserSettings {
        chromium: path("chromium"),
        data_dir: path("data_dir"),
        headless: section.flag("headless"),
        allow_downloads: section.flag("allow_downloads"),
        allow_file_urls: section.flag("allow_file_urls"),
        script_role: section.one_of("script_role", &roles),
        programs,
        open_max: section.count("open_max", 1..=OPEN_MAX),
        stop_grace: Duration::from_millis(section.span("stop_grace", Span(100)..=Span::mins(1)).0),
        recycle_bin_retention: section.span("recycle_bin_retention", Span(0)..=SPAN_MAX),
        proxy_test_url: parsed.unwrap_or_else(|| {
            Url::parse("https://example.com/").expect("an address in the program is an address")
        }),
    })
}
