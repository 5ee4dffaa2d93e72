# GitHub for reading: the API, files and archives, clones over HTTPS.
group "github_read" {
  # The REST API.
  allow "api.github.com" { access = "read" }
  # Single files.
  allow "raw.githubusercontent.com" { access = "read" }
  # Archives of repositories, which the API redirects to.
  allow "codeload.github.com" { access = "read" }
  # Files of releases, which github.com redirects to.
  allow "release-assets.githubusercontent.com" { access = "read" }
  # Pages and files of releases.
  allow "github.com" { access = "read" }
}
