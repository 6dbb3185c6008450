//! The identity in a client certificate: the URI `laneway://tenant/<tenant>/role/<role>` among its names.
//!
//! The tenant `*` means the whole server. Other names and the subject of the certificate are ignored. The TLS
//! handshake has already checked that a trusted authority signed it.

use laneway_core::{Name, Role};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::Principal;

/// The identity in a client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    tenant: Option<Name>,
    role: Role,
}

impl Identity {
    /// Reads the identity. `None` when the certificate has no such URI, or more than one.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut found = certificate.valid_uri_names().filter(|uri| uri.starts_with("laneway:"));
        let identity = Identity::parse(found.next()?)?;
        found.next().is_none().then_some(identity)
    }

    /// Reads the URI. `None`: it is none of an identity.
    pub fn parse(uri: &str) -> Option<Identity> {
        let (tenant, role) = uri.strip_prefix("laneway://tenant/")?.split_once("/role/")?;
        let tenant = match tenant {
            "*" => None,
            text => Some(Name::new(text).ok().filter(Name::is_plain)?),
        };
        Some(Identity { tenant, role: Role::parse(role)? })
    }

    /// Its URI.
    pub fn uri(&self) -> String {
        let tenant = self.tenant.as_ref().map_or("*", Name::as_str);
        format!("laneway://tenant/{tenant}/role/{}", self.role.as_str())
    }

    /// The principal of this identity.
    pub fn principal(&self) -> Principal {
        let tenant = self.tenant.as_ref().map_or("*", Name::as_str);
        let actor = format!("cert:{}:{tenant}", self.role.as_str());
        let actor = Name::new(&actor).unwrap_or_else(|_| Name::fixed("cert"));
        Principal { actor, role: self.role, bound: self.tenant.clone(), expires_at: None, by_token: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_tenant_and_role() {
        let acme = Identity::parse("laneway://tenant/acme/role/submitter").unwrap().principal();
        assert_eq!((acme.actor.as_str(), acme.role), ("cert:submitter:acme", Role::Submitter));
        assert_eq!(acme.bound, Some(Name::fixed("acme")));
        let all = Identity::parse("laneway://tenant/*/role/admin").unwrap().principal();
        assert_eq!((all.actor.as_str(), all.bound), ("cert:admin:*", None));
        for uri in ["laneway://tenant/acme/role/submitter", "laneway://tenant/*/role/admin"] {
            assert_eq!(Identity::parse(uri).unwrap().uri(), uri);
        }
    }

    #[test]
    fn rejects_everything_else() {
        for uri in [
            "laneway://tenant//role/admin",
            "laneway://tenant/a/role/root",
            "laneway://tenant/a/role/admin/",
            "laneway://tenant/a b/role/admin",
            "laneway://tenant/**/role/admin",
            "https://tenant/a/role/admin",
            "laneway://role/admin/tenant/a",
        ] {
            assert_eq!(Identity::parse(uri), None, "{uri}");
        }
    }
}
