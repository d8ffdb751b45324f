#!/usr/bin/env bash
# Submits the folders of the registry that a pull request changes, each in a container without network.
# Usage: submit_changed.sh CHECKOUT BASE_COMMIT OUT; SUBMIT names another command to run a folder with. With
# REGISTRY_SECRET the seed of a verdict is that of the month (MONTH, by default this one) and of the folder's content:
# another month has other videos, and the maintainers can repeat an old verdict. Without it the seed is drawn.
set -euo pipefail
checkout=$1 base=$2 out=$3
mkdir -p "$out"
out=$(realpath "$out")
checkout=$(realpath "$checkout")
summary=${GITHUB_STEP_SUMMARY:-/dev/stdout}
failed=0

submit_in_container() {
  timeout 30m docker run --rm --network none --memory 6g --memory-swap 6g --cpus 2 --pids-limit 256 \
    --cap-drop ALL --security-opt no-new-privileges \
    -v "$1:/card:ro" -v "$2:/out" -w /tmp registry \
    focus-eval submit --card /card/card.yaml --out /out ${3:+--seed "$3"}
}

# The secret stays out of the container: the sampler's process gets the seed alone, once the sampler is written.
hidden_seed() {
  [ -n "${REGISTRY_SECRET:-}" ] || return 0
  python3 - "$@" << 'END'
import hmac, os, sys
digest = hmac.digest(os.environ["REGISTRY_SECRET"].encode(), " ".join(sys.argv[1:]).encode(), "sha256")
print(int.from_bytes(digest[:4], "big") % 2**31)
END
}

# Names come from the pull request: only those that the registry allows are used.
folders=$(git -C "$checkout" diff --name-only -z "$base"...HEAD -- registry/samplers \
  | tr '\0' '\n' | sed -nE 's|^registry/samplers/([a-z0-9][a-z0-9_]{0,39})/.*|\1|p' | sort -u)
for name in $folders; do
  folder=$checkout/registry/samplers/$name
  [ -f "$folder/card.yaml" ] || continue # taken away
  mkdir -p "$out/$name"
  content=$(git -C "$checkout" rev-parse "HEAD:registry/samplers/$name")
  seed=$(hidden_seed "${MONTH:-$(date -u +%Y-%m)}" "$content")
  if "${SUBMIT:-submit_in_container}" "$folder" "$out/$name" "$seed" > "$out/$name/submit.log" 2>&1; then
    outcome="submitted"
  else
    [ $? -lt 124 ] || echo "Stopped: out of time or memory." >> "$out/$name/submit.log"
    outcome="not accepted" failed=1
  fi
  {
    echo "### $name: $outcome"
    echo '```'
    tail -n 60 "$out/$name/submit.log" | tr -d '`'
    echo '```'
  } >> "$summary"
done
exit "$failed"
