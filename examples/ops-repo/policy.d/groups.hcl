# Installing packages, read only.
group "packages" {
  # Python's index.
  allow "pypi.org" { access = "read" }
  # The files that the index points to.
  allow "files.pythonhosted.org" { access = "read" }
}
