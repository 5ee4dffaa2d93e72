# Python packages, for installing and never for publishing: access = "read" is
# GET, HEAD and OPTIONS.
group "python" {
  # The index.
  allow "pypi.org" { access = "read" }
  # The packages.
  allow "files.pythonhosted.org" { access = "read" }
}
