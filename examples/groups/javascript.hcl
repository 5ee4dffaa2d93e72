# JavaScript packages, for installing and never for publishing.
group "javascript" {
  # Index and packages of npm, pnpm, yarn and bun.
  allow "registry.npmjs.org" {
    access        = "read"
    encoded_slash = true # scoped packages are asked for as /@scope%2fname
  }
  # yarn's name for the same registry.
  allow "registry.yarnpkg.com" {
    access        = "read"
    encoded_slash = true
  }
}
