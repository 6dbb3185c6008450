//! `laneway profiles`: browser profiles and the recycle bin.

use clap::Subcommand;
use laneway_browser::Proxy;
use laneway_wire::{Profile, ProfileList, ProfilePatchRequest, ProfileRequest, ProfileWindow, ProxyRequest};
use reqwest::{Method, Url};
use serde_json::json;

use crate::client::Client;
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint};
use crate::short_id;
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for profiles.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A profile is what a browser keeps between its starts: cookies, storage, cache, and how it appears to pages. It is named by \
its id, the beginning or the end of it, or its name.

Examples:
  laneway profiles create shop
  laneway profiles create shop-de --locale de-DE --time-zone Europe/Berlin --window 1280x800
  LANEWAY_PROXY_PASSWORD=… laneway profiles create far --proxy socks5://ann@proxy.example:1080
  laneway profiles update shop --name 'The shop' --no-proxy
  laneway profiles list --search shop
  laneway profiles trash shop
  laneway profiles restore shop
  laneway profiles delete shop")]
pub struct ProfilesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Profiles, newest first
    List(ListArgs),
    /// Create a profile
    Create(CreateArgs),
    /// One profile
    Show {
        /// The profile
        profile: String,
    },
    /// Change a profile; other settings stay, and an open browser is not changed
    Update(UpdateArgs),
    /// Put a profile into the recycle bin; its browser must be closed
    Trash {
        /// The profile
        profile: String,
    },
    /// Take a profile out of the recycle bin
    Restore {
        /// The profile
        profile: String,
    },
    /// Delete a profile of the recycle bin with its files, for good
    Delete {
        /// The profile
        profile: String,
        /// Also when it is not in the recycle bin
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only profiles whose id or name contains this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only profiles with this status
    #[arg(long, value_parser = ["active", "trashed"])]
    status: Option<String>,
    /// Most profiles
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: u32,
    /// Continue after the previous page
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Its id: lower-case letters, digits, _ and -; without one it gets a random id
    id: Option<String>,
    /// Its name, for people; the id by default
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[command(flatten)]
    looks: Looks,
}

#[derive(Debug, clap::Args)]
struct UpdateArgs {
    /// The profile
    profile: String,
    /// Another name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[command(flatten)]
    looks: Looks,
    /// Use no proxy any more
    #[arg(long, conflicts_with = "proxy")]
    no_proxy: bool,
}

/// How the browser reaches pages, and how it appears to them.
#[derive(Debug, clap::Args)]
struct Looks {
    /// The proxy for all requests: http://, https:// or socks5://, with a user if it needs one
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// The password of the proxy's user; every user of the machine can see it in the list of processes, so prefer
    /// LANEWAY_PROXY_PASSWORD
    #[arg(long, env = "LANEWAY_PROXY_PASSWORD", hide_env_values = true, value_name = "SECRET")]
    proxy_password: Option<String>,
    /// The size of the window in pixels, such as 1280x800
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_window)]
    window: Option<ProfileWindow>,
    /// The user agent that pages see
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,
    /// The language that pages see, such as de-DE
    #[arg(long, value_name = "TAG")]
    locale: Option<String>,
    /// The time zone that pages see, such as Europe/Berlin
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
}

fn parse_window(text: &str) -> Result<ProfileWindow, String> {
    let sides =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    sides.map(|(width, height)| ProfileWindow { width, height }).ok_or("write it such as 1280x800".to_owned())
}

/// Runs a command for profiles.
pub async fn run(output: &Output, client: &Client, args: &ProfilesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(args) => list(output, client, args).await,
        Verb::Create(args) => {
            let request = args.request()?;
            show_line(output, &client.send(Method::POST, &["v1", "profiles"], &request).await?)
        }
        Verb::Show { profile } => {
            let id = find(client, profile).await?;
            show(output, &client.get(&["v1", "profiles", &id], &[]).await?)
        }
        Verb::Update(args) => {
            let id = find(client, &args.profile).await?;
            show(output, &client.send(Method::PATCH, &["v1", "profiles", &id], &args.request()?).await?)
        }
        Verb::Trash { profile } => {
            let id = find(client, profile).await?;
            show_line(output, &client.post(&["v1", "profiles", &id, "trash"]).await?)
        }
        Verb::Restore { profile } => {
            let id = find(client, profile).await?;
            show_line(output, &client.post(&["v1", "profiles", &id, "restore"]).await?)
        }
        Verb::Delete { profile, force } => {
            let id = find(client, profile).await?;
            client.delete_with(&["v1", "profiles", &id], &[("force", force.to_string())]).await?;
            if output.json {
                return output.document(&json!({"id": id, "deleted": true}));
            }
            output.line(format!("profile {id} is deleted"));
            Ok(())
        }
    }
}

impl CreateArgs {
    fn request(&self) -> anyhow::Result<ProfileRequest> {
        let CreateArgs { id, name, looks } = self;
        let Looks { proxy, proxy_password, window, user_agent, locale, time_zone } = looks;
        Ok(ProfileRequest {
            id: id.clone(),
            name: name.clone(),
            proxy: proxy.as_deref().map(|url| read_proxy(url, proxy_password.as_deref())).transpose()?,
            window: *window,
            user_agent: user_agent.clone(),
            locale: locale.clone(),
            time_zone: time_zone.clone(),
        })
    }
}

impl UpdateArgs {
    fn request(&self) -> anyhow::Result<ProfilePatchRequest> {
        let UpdateArgs { profile: _, name, looks, no_proxy } = self;
        let Looks { proxy, proxy_password, window, user_agent, locale, time_zone } = looks;
        let proxy = proxy.as_deref().map(|url| read_proxy(url, proxy_password.as_deref())).transpose()?;
        // An empty text removes a value.
        let text =
            |text: &Option<String>| text.clone().map(|text| Some(text).filter(|text| !text.is_empty()));
        Ok(ProfilePatchRequest {
            name: name.clone(),
            proxy: if *no_proxy { Some(None) } else { proxy.map(Some) },
            window: window.map(Some),
            user_agent: text(user_agent),
            locale: text(locale),
            time_zone: text(time_zone),
        })
    }
}

/// The proxy of a URL. Its password comes from elsewhere: every user of the machine can see a command line.
fn read_proxy(text: &str, password: Option<&str>) -> anyhow::Result<ProxyRequest> {
    let wrong = |reason: &str| CliError::new(Exit::Usage, format!("--proxy: {reason}"));
    let proxy = Proxy::parse(text).map_err(|bad| wrong(&bad.reason))?;
    if text.parse().is_ok_and(|url: Url| url.password().is_some()) {
        let reason = "the URL holds a password, which every user of this machine can see in the list of processes; \
                      give it in LANEWAY_PROXY_PASSWORD";
        return Err(wrong(reason).into());
    }
    Ok(ProxyRequest {
        scheme: Some(proxy.scheme().as_str().to_owned()),
        host: proxy.host().to_owned(),
        port: proxy.port(),
        username: proxy.user().map(str::to_owned),
        password: proxy.user().and(password).map(str::to_owned),
    })
}

async fn list(output: &Output, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let ListArgs { search, status, limit, cursor } = args;
    let mut query = vec![("limit", limit.to_string())];
    query.extend(search.clone().map(|text| ("search", text)));
    query.extend(status.clone().map(|text| ("status", text)));
    query.extend(cursor.clone().map(|text| ("cursor", text)));
    let list: ProfileList = client.get(&["v1", "profiles"], &query).await?;
    if output.json {
        return output.document(&list);
    }
    if list.profiles.is_empty() {
        output.line(output.paint(Paint::Dim, "no profiles"));
        return Ok(());
    }
    table(&list.profiles).print(output);
    if let Some(next) = &list.next {
        let more = format!("{} of {}; the next page: --cursor {next}", list.profiles.len(), list.total);
        output.line(output.paint(Paint::Dim, &more));
    }
    Ok(())
}

fn table(profiles: &[Profile]) -> Table {
    let mut table = Table::new()
        .left("PROFILE")
        .flexible("NAME")
        .left("STATUS")
        .left("PROXY")
        .spare(2)
        .left("WINDOW")
        .spare(0)
        .left("LOCALE")
        .spare(1)
        .left("CHANGED")
        .spare(3);
    for profile in profiles {
        table.row(vec![
            Cell::plain(&profile.id),
            Cell::plain(&profile.name),
            status(profile),
            Cell::maybe(profile.proxy.as_ref().map(|proxy| format!("{}:{}", proxy.host, proxy.port))),
            Cell::maybe(profile.window.map(shown_window)),
            Cell::maybe(profile.locale.as_ref()),
            Cell::plain(time_args::distance(&profile.updated_at)),
        ]);
    }
    table
}

/// `open`, `closed` or `trashed`.
fn status(profile: &Profile) -> Cell {
    match (profile.open, profile.status.as_str()) {
        (true, _) => Cell::painted("open", Paint::Green),
        (false, "active") => Cell::plain("closed"),
        (false, other) => Cell::painted(other, Paint::Yellow),
    }
}

fn shown_window(window: ProfileWindow) -> String {
    format!("{}x{}", window.width, window.height)
}

/// One line about a profile.
fn show_line(output: &Output, profile: &Profile) -> anyhow::Result<()> {
    if output.json {
        return output.document(profile);
    }
    table(std::slice::from_ref(profile)).print(output);
    Ok(())
}

/// Everything about a profile.
fn show(output: &Output, profile: &Profile) -> anyhow::Result<()> {
    if output.json {
        return output.document(profile);
    }
    let proxy = profile.proxy.as_ref().map(|proxy| {
        let user = proxy.username.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let password = if proxy.has_password { " (with a password)" } else { "" };
        format!("{}://{user}{}:{}{password}", proxy.scheme, proxy.host, proxy.port)
    });
    let at = |time: &String| format!("{time} ({})", time_args::distance(time));
    let open = if profile.open { "open" } else { "closed" };
    let lines = [
        ("name", Some(profile.name.clone())),
        ("status", Some(profile.status.clone())),
        ("browser", Some(open.to_owned())),
        ("proxy", proxy),
        ("window", profile.window.map(shown_window)),
        ("user agent", profile.user_agent.clone()),
        ("locale", profile.locale.clone()),
        ("time zone", profile.time_zone.clone()),
        ("copy of", profile.cloned_from.clone()),
        ("created", Some(at(&profile.created_at))),
        ("changed", Some(at(&profile.updated_at))),
        ("trashed", profile.trashed_at.as_ref().map(at)),
    ];
    output.line(output.paint(Paint::Bold, &profile.id));
    for (label, value) in lines {
        if let Some(value) = value {
            output.line(format!("{} {value}", output.paint(Paint::Dim, &format!("  {label:<11}"))));
        }
    }
    Ok(())
}

/// How many profiles are searched for a part of an id; the server allows no more in one call.
const REACH: u32 = 500;

/// The id of a profile, from its id, a part of it, or its name.
pub async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    let query = [("search", text.to_owned()), ("limit", REACH.to_string())];
    let list: ProfileList = client.get(&["v1", "profiles"], &query).await?;
    if list.profiles.iter().any(|profile| profile.id == text) {
        return Ok(text.to_owned());
    }
    let is_named = |profile: &&Profile| profile.name == text;
    let named: Vec<String> =
        list.profiles.iter().filter(is_named).map(|profile| profile.id.clone()).collect();
    match named.as_slice() {
        [only] => return Ok(only.clone()),
        [] => {}
        many => {
            let message =
                format!("{} profiles have the name {text}; give an id:\n  {}", many.len(), many.join("\n  "));
            return Err(CliError::new(Exit::Usage, message).into());
        }
    }
    let ids: Vec<String> = list.profiles.into_iter().map(|profile| profile.id).collect();
    let fitting: Vec<String> = ids.into_iter().filter(|id| short_id::fits(id, text)).collect();
    if fitting.is_empty() {
        let message = format!("there is no profile {text}; `laneway profiles list` shows all");
        return Err(CliError::new(Exit::NotFound, message).into());
    }
    Ok(short_id::only_one("profile", text, &fitting, "profiles")?)
}
