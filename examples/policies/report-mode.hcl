# Finding out what a job needs: everything the policy would refuse is let
# through and recorded with the verdict it would have had. Secrets and the
# identity of hosts are protected as ever.
#
#   sallyport run --policy examples/policies/report-mode.hcl -- make test
#   sallyport policy suggest --policy examples/policies/report-mode.hcl   # the rules that it lacked

sandbox "trial" {
  mode = "report"

  # What is known to be needed already.
  allow "pypi.org" { access = "read" }
}
