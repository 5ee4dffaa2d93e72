# Packages of Debian.
group "debian" {
  # Packages over plain HTTP, as apt asks for them; apt verifies signatures.
  allow "deb.debian.org" {
    access  = "read"
    schemes = ["http", "https"]
  }
  # Security updates.
  allow "security.debian.org" {
    access  = "read"
    schemes = ["http", "https"]
  }
}
