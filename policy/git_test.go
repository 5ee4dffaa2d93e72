package policy

import "testing"

func TestGitRules(t *testing.T) {
	doc := sandboxDoc(
		ruleOf(ActionGit, "git.test/acme/app", line(1), access("write"), inject("GIT_TOKEN")),
		ruleOf(ActionGit, "git.test/acme/lib", line(2), access("read")),
		ruleOf(ActionGit, "git.test/open/*", line(3)),
		ruleOf(ActionGit, "lab.test/group/sub/repo.git", line(4)),
	)
	doc.Secrets = []Secret{{Name: "GIT_TOKEN", Hosts: []string{"git.test"}}}
	s := mustCompile(t, doc)
	const upload, receive = "service=git-upload-pack", "service=git-receive-pack"
	for _, tt := range []struct {
		method, host, path, query string
		want                      Reason
	}{
		{"GET", "git.test", "/acme/app/info/refs", upload, RuleAllow},
		{"GET", "git.test", "/acme/app.git/info/refs", upload, RuleAllow},
		{"GET", "git.test", "/acme/app.git/info/refs", receive, RuleAllow},
		{"POST", "git.test", "/acme/app.git/git-upload-pack", "", RuleAllow},
		{"POST", "git.test", "/acme/app.git/git-receive-pack", "", RuleAllow},
		{"POST", "git.test", "/acme/app.git/info/lfs/objects/batch", "", RuleAllow},
		{"POST", "git.test", "/acme/app.git/info/lfs/locks", "", RuleAllow},
		{"POST", "git.test", "/acme/app.git/info/lfs/locks/7/unlock", "", RuleAllow},
		{"GET", "git.test", "/acme/lib/info/refs", upload, RuleAllow},
		{"GET", "git.test", "/acme/lib/info/refs", receive, GitPushNotAllowed},
		{"POST", "git.test", "/acme/lib/git-upload-pack", "", RuleAllow},
		{"POST", "git.test", "/acme/lib/git-receive-pack", "", GitPushNotAllowed},
		{"POST", "git.test", "/acme/lib.git/git-receive-pack", "", GitPushNotAllowed},
		{"GET", "git.test", "/acme/lib/info/lfs/locks", "path=x", RuleAllow},
		{"POST", "git.test", "/acme/lib/info/lfs/locks", "", GitPushNotAllowed},
		{"POST", "git.test", "/acme/lib/info/lfs/locks/7/unlock", "", GitPushNotAllowed},
		{"POST", "git.test", "/open/any/git-upload-pack", "", RuleAllow},
		{"POST", "git.test", "/open/any/git-receive-pack", "", GitPushNotAllowed},
		{"POST", "git.test", "/open/any/more/git-upload-pack", "", PathNotAllowed},
		{"GET", "git.test", "/acme/app/info/refs", "", QueryNotAllowed},
		{"GET", "git.test", "/acme/app/info/refs", upload + "&" + receive, QueryNotAllowed},
		{"POST", "git.test", "/acme/app/git-upload-pack", "x=1", QueryNotAllowed},
		{"POST", "git.test", "/acme/app/info/refs", upload, NoRuleMatched},
		{"GET", "git.test", "/acme/app/git-upload-pack", "", NoRuleMatched},
		{"PUT", "git.test", "/acme/app/info/lfs/locks", "", MethodNotAllowed},
		{"GET", "git.test", "/acme/app", "", PathNotAllowed},
		{"GET", "git.test", "/acme/app/issues", "", PathNotAllowed},
		{"GET", "git.test", "/acme/other/info/refs", upload, PathNotAllowed},
		{"GET", "git.test", "/acme/app.git.git/info/refs", upload, PathNotAllowed},
		{"GET", "git.test", "/acme/.git/info/refs", upload, PathNotAllowed},
		{"GET", "git.test", "/acme/lib/../app/info/refs", upload, AmbiguousPath},
		{"GET", "git.test", "/acme%2Fapp/info/refs", upload, AmbiguousPath},
		{"POST", "git.test", "/acme/app/git-receive%2Dpack", "", PathNotAllowed},
		{"GET", "lab.test", "/group/sub/repo/info/refs", upload, RuleAllow},
		{"GET", "lab.test", "/group/sub/repo.git/info/refs", receive, GitPushNotAllowed},
		{"GET", "lab.test", "/sub/repo.git/info/refs", upload, PathNotAllowed},
	} {
		r := request(tt.method, tt.host, tt.path)
		r.Query = tt.query
		d := s.Decide(r)
		if d.Reason != tt.want || (d.Verdict == Allow) != (tt.want == RuleAllow) {
			t.Errorf("%s %s?%s: %v %s, want %s", tt.method, tt.path, tt.query, d.Verdict, d.Reason, tt.want)
		}
	}
	r := get("git.test", "/acme/app/info/refs")
	r.Query = upload
	if d := s.Decide(r); len(d.Inject) != 1 || d.Rule.Repo != "acme/app" || d.Rule.Host != "git.test" {
		t.Errorf("decision %+v of rule %+v", d, d.Rule)
	}
	if d := wantReason(t, s, conn("git.test", 443, HTTPS), RuleAllow); d.Relay != RelayIntercept {
		t.Errorf("relay %v", d.Relay)
	}
}
