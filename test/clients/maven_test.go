//go:build linux

package clients_test

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// maven gets a plugin from a repository, with all that it needs, and runs it.
func maven() client {
	const settings = `<settings>
  <mirrors><mirror><id>acme</id><mirrorOf>*</mirrorOf><url>https://URL/</url></mirror></mirrors>
  <servers><server><id>acme</id><username>build</username><password>${env.API_KEY}</password></server></servers>
</settings>
`
	at := func(host string) string {
		return string(bytes.ReplaceAll([]byte(settings), []byte("URL"), []byte(host)))
	}
	return client{name: "Maven", serve: mavenRepository, auth: basic, prints: []string{"maven works"}, refusal: "authorization failed for https://BLOCKED/test/acme/other-plugin/1.0/other-plugin-1.0.pom, status: 403",
		files: map[string]string{"settings.xml": at("HOST"), "other.xml": at("BLOCKED")}, script: `
mvn="mvn -B -q -Dmaven.repo.local=$HOME/repository"
$mvn -s settings.xml test.acme:acme-plugin:1.0:say
fails $mvn -s other.xml test.acme:other-plugin:1.0:say`}
}

const (
	mojo = `package test.acme;
public class Say extends org.apache.maven.plugin.AbstractMojo {
  public void execute() { System.out.println("maven works"); }
}
`
	pluginXML = `<plugin>
  <name>acme</name><groupId>test.acme</groupId><artifactId>acme-plugin</artifactId><version>1.0</version><goalPrefix>acme</goalPrefix>
  <mojos><mojo><goal>say</goal><requiresProject>false</requiresProject><instantiationStrategy>per-lookup</instantiationStrategy><implementation>test.acme.Say</implementation><language>java</language></mojo></mojos>
</plugin>
`
	pluginPOM = `<project><modelVersion>4.0.0</modelVersion><groupId>test.acme</groupId><artifactId>acme-plugin</artifactId><version>1.0</version><packaging>maven-plugin</packaging></project>
`
	utilsPOM = `<project><modelVersion>4.0.0</modelVersion><groupId>org.codehaus.plexus</groupId><artifactId>plexus-utils</artifactId><version>1.1</version></project>
`
)

// mavenRepository has a plugin that is compiled here, and the library that
// Maven gives to every plugin.
func mavenRepository(t *testing.T, s *site) {
	src := filepath.Join(s.dir, "Say.java")
	must(t, os.WriteFile(src, []byte(mojo), 0o644))
	cmd := exec.Command("javac", "-cp", "/usr/share/maven/lib/*", "-d", s.dir, src)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	class, err := os.ReadFile(filepath.Join(s.dir, "test/acme/Say.class"))
	must(t, err)
	const plugin, utils = "/test/acme/acme-plugin/1.0/acme-plugin-1.0.", "/org/codehaus/plexus/plexus-utils/1.1/plexus-utils-1.1."
	origin(s.host).SetHandler(static(s, map[string][]byte{
		plugin + "pom": []byte(pluginPOM), plugin + "jar": zipped(t, entry{"META-INF/maven/plugin.xml", pluginXML}, entry{"test/acme/Say.class", string(class)}),
		utils + "pom": []byte(utilsPOM), utils + "jar": zipped(t, entry{"META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n"}),
	}))
}

// zipped is a zip.
func zipped(t *testing.T, files ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		must(t, err)
		_, err = w.Write([]byte(f.text))
		must(t, err)
	}
	must(t, z.Close())
	return b.Bytes()
}
