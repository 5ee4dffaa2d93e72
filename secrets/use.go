package secrets

import "context"

// Use hands the value of a secret to f, which is to send it where the secret is
// approved for and not to keep it. Errors are those of Get, or f's own.
func (s *Store) Use(ctx context.Context, name string, f func(value string) error) error {
	v, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	return f(v.Reveal())
}
