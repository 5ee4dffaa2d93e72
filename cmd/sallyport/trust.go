package main

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"sallyport/certs"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
)

// sandboxEnv is what a sandbox's environment gets: placeholders under the
// names of secrets, and the variables that make clients trust the CA.
func (st *stack) sandboxEnv(sb *identity.Sandbox, dir string) map[string]string {
	env := certs.TrustAt(dir).Environment()
	snap := st.gateway.Snapshot()
	if snap == nil {
		return env
	}
	for name, text := range snap.Inject.Environment(sb.Policy, st.loader.secretsOf(sb.Policy)) {
		env[name] = text
	}
	return env
}

// browserTrust is where Chromium looks for its user's trust in the home of a
// command with that environment, if it has one.
func browserTrust(env []string) map[string]string {
	for _, kv := range env {
		home, ok := strings.CutPrefix(kv, "HOME=")
		if info, err := os.Stat(home); ok && filepath.IsAbs(home) && err == nil && info.IsDir() {
			return map[string]string{filepath.Join(home, ".pki", "nssdb"): certs.TrustNSSDir}
		}
	}
	return nil
}

// internalFile is a file of http://sallyport.internal/.
func (st *stack) internalFile(sb *identity.Sandbox, file string) ([]byte, string, bool) {
	switch name := strings.TrimPrefix(path.Clean(file), "/"); name {
	case certs.TrustCAFile, certs.TrustBundleFile:
		return st.trust[name], "application/x-pem-file", true
	case certs.TrustNSSFile:
		return st.trust[name], "application/vnd.sqlite3", true
	case "env.sh":
		return certs.EnvScript(st.sandboxEnv(sb, capture.FilesDir)), "text/x-shellscript; charset=utf-8", true
	}
	return nil, "", false
}
