package awssm

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCredentialsAsValue(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = ID\naws_secret_access_key = key\n[prod]\naws_access_key_id = ID2\naws_secret_access_key = key2\naws_session_token = tok==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for profile, want := range map[string]string{"": "ID:key", "prod": "ID2:key2:tok=="} {
		s, err := NewCredentials(Config{CredentialsFile: file, Profile: profile})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Fetch(context.Background())
		if err != nil || got.Value.Reveal() != want || got.TTL != 5*time.Minute {
			t.Errorf("profile %q: %v, good for %v", profile, err, got.TTL)
		}
	}
	s, err := NewCredentials(Config{NoInstance: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(context.Background()); err == nil {
		t.Error("credentials came from nowhere")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "ID3")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "key3")
	if got, err := s.Fetch(context.Background()); err != nil || got.Value.Reveal() != "ID3:key3" {
		t.Errorf("of the environment: %v", err)
	}
}
