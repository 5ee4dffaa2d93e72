# Container images, for pulling and never for pushing.

group "docker_hub" {
  # The registry.
  allow "registry-1.docker.io" { access = "read" }
  # The token that an anonymous pull needs.
  allow "auth.docker.io" {
    access = "read"
    paths  = ["/token"]
  }
  # The layers, which the registry redirects to.
  allow "production.cloudflare.docker.com" { access = "read" }
}

group "ghcr" {
  # The registry, and the token that an anonymous pull needs.
  allow "ghcr.io" { access = "read" }
  # The layers, which the registry redirects to.
  allow "pkg-containers.githubusercontent.com" { access = "read" }
}
