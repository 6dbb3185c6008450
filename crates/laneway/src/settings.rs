//! The sources of the program's configuration: file, environment and flags.

use std::path::PathBuf;

use laneway_runtime::config::{Config, ConfigErrors, Layers, Overrides};
use toml::{Table, Value};

use crate::exit::{CliError, Exit};

/// The environment variables, read once by `main.rs`.
pub type Environment = Vec<(String, String)>;

/// The flags of every command that loads a configuration.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigFlags {
    /// Read this configuration file
    #[arg(long, short, global = true, value_name = "FILE", env = "LANEWAY_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// The data directory
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The store: sqlite:DIR, or postgres://user@host/database (other users of the machine see a password here; use
    /// LANEWAY_SERVER__STORE)
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub store: Option<String>,
    /// Any key of the configuration; may be repeated
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, Value)>,
}

impl ConfigFlags {
    /// The layers: defaults, file, environment, flags.
    pub fn layers(&self, environment: &Environment) -> anyhow::Result<Layers> {
        let data_dir = self
            .data_dir
            .as_ref()
            .map(|dir| ("server.data_dir".to_owned(), dir.display().to_string().into()));
        let store = self.store.as_ref().map(|store| ("server.store".to_owned(), store.as_str().into()));
        let flags = data_dir.into_iter().chain(store).chain(self.settings.iter().cloned());
        let flags = laneway::settings_table(flags);
        Layers::read(laneway::config_schema(), self.config.as_deref(), environment.iter().cloned(), flags)
            .map_err(wrong_config)
    }

    /// The configuration of all layers, without changes by API calls: those are in the data directory.
    pub fn resolve(&self, environment: &Environment) -> anyhow::Result<Config> {
        self.layers(environment)?.resolve(&Overrides::none()).map_err(wrong_config)
    }

    /// The data directory, for a command that works on its files. A store in PostgreSQL has none.
    pub fn directory(&self, environment: &Environment, remedy: &str) -> anyhow::Result<PathBuf> {
        let server = self.resolve(environment)?.server;
        match server.store.directory() {
            Some(dir) => Ok(dir.to_owned()),
            None => {
                let message =
                    format!("the store is {}, which this command does not read; {remedy}", server.store);
                Err(CliError::new(Exit::Rejected, message).into())
            }
        }
    }
}

/// The error for an invalid configuration.
pub fn wrong_config(errors: ConfigErrors) -> anyhow::Error {
    let message = format!("the configuration is wrong\n{errors}");
    CliError { config: Some(Box::new(errors)), ..CliError::new(Exit::Config, message) }.into()
}

/// Parses `lanes.main.running_max=8`: the value is TOML if it parses, else a text.
fn parse_setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("use KEY=VALUE, such as lanes.main.running_max=8")?;
    let parsed: Option<Table> = format!("value = {value}").parse().ok();
    let value =
        parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(value.to_owned()));
    Ok((key.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_toml_or_text() {
        assert_eq!(parse_setting("a.b=8").unwrap(), ("a.b".into(), Value::Integer(8)));
        assert_eq!(parse_setting("a.b=30s").unwrap(), ("a.b".into(), Value::String("30s".into())));
        assert_eq!(parse_setting("a=\"x=y\"").unwrap(), ("a".into(), Value::String("x=y".into())));
        assert!(parse_setting("nothing").is_err());
    }

    #[test]
    fn flags_reach_the_configuration() {
        let flags = ConfigFlags {
            config: None,
            data_dir: Some("elsewhere".into()),
            store: None,
            settings: vec![parse_setting("lanes.main.running_max=8").unwrap()],
        };
        let config = flags.resolve(&Vec::new()).unwrap();
        assert_eq!(config.server.data_dir, PathBuf::from("elsewhere"));
        assert_eq!(config.settings().lanes["main"].running_max, 8);
        let wrong =
            ConfigFlags { settings: vec![parse_setting("lanes.main.runing_max=8").unwrap()], ..flags };
        let error = wrong.resolve(&Vec::new()).unwrap_err().to_string();
        assert!(error.contains("running_max"), "no suggestion in {error:?}");
    }
}
