package main

import (
	"maps"
	"os"
	"slices"
	"strings"

	"sallyport/certs"
	"sallyport/gateway/capture"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
)

// command is what the sandbox runs, with what it must not see.
func (f *runFlags) command(st *stack, sb *identity.Sandbox, argv []string) capture.Command {
	files := maps.Clone(st.trust)
	files["env.sh"] = certs.EnvScript(st.sandboxEnv(sb, capture.FilesDir))
	over := map[string]string{}
	if _, ok := files[certs.TrustBundleFile]; ok {
		for _, path := range certs.SystemBundlePaths() {
			over[path] = certs.TrustBundleFile
		}
	}
	env := f.environment(st, sb)
	return capture.Command{Argv: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Share: f.share, Hide: st.hidden(), Files: files, Over: over, Own: browserTrust(env), Timeout: f.timeout}
}

// hidden are the paths that no sandbox on this host may read.
func (st *stack) hidden() []string {
	return append([]string{st.settings.state}, st.loader.sourceFiles()...)
}

// proxyVariables would send clients to a proxy that the sandbox cannot reach.
func proxyVariables() []string {
	return []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"}
}

// isCommon says whether a variable holds nothing secret, whatever is fetched
// with it.
func isCommon(name string) bool {
	return slices.Contains([]string{"PATH", "HOME", "USER", "LANG", "TZ"}, name)
}

// environment is the caller's, without what is secret or of no use inside,
// and with what the sandbox needs.
func (f *runFlags) environment(st *stack, sb *identity.Sandbox) []string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	for name := range env {
		if slices.Contains(proxyVariables(), strings.ToLower(name)) {
			delete(env, name)
		}
	}
	for _, name := range st.loader.sourceVariables() {
		dropCopies(env, os.Getenv(name))
		delete(env, name)
	}
	cover := st.cover()
	for name, value := range env { // a copy of what another source gave
		if cover(value) != value {
			delete(env, name)
		}
	}
	for _, name := range st.loader.passedVariables() {
		if !isCommon(name) {
			delete(env, name)
		}
	}
	maps.Copy(env, st.sandboxEnv(sb, capture.FilesDir))
	env["SALLYPORT_SANDBOX"] = sb.Name
	for _, kv := range f.env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		} else {
			delete(env, name)
		}
	}
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// dropCopies deletes the variables that have a value in theirs, if that is too
// long to stand there by chance.
func dropCopies(env map[string]string, value string) {
	const least = 8 // bytes, as for every other value that is looked for
	maps.DeleteFunc(env, func(_, text string) bool { return len(value) >= least && strings.Contains(text, value) })
}

// cover returns what covers, in a text, the values that are held now, and
// their encodings where they do not stand there by chance.
func (st *stack) cover() func(string) string {
	store := st.gateway.Snapshot().Secrets
	guard := inject.NewGuard(store.Held())
	return func(text string) string { return guard.Cover(store.Cover(text)) }
}

// covered are texts as they may be recorded.
func (st *stack) covered(texts ...string) []string {
	cover := st.cover()
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = cover(text)
	}
	return out
}
