#!/usr/bin/env bash
# Builds the wheel, or takes the one that WHEEL names, and installs it into two fresh environments, neither
# of which gets torch: the base package, and dbq[run]. PYTHON makes them. They see no compiler: a wheel has
# to do without.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(mktemp -d)
rm=$(command -v rm)
trap '"$rm" -rf "$here"' EXIT

# expect STATUS TEXT COMMAND...: the command ends with this status and prints this text.
expect() {
    local status=0 wanted=$1 text=$2 output
    shift 2
    output=$("$@" 2>&1) || status=$?
    if [ "$status" != "$wanted" ] || [[ "$output" != *"$text"* ]]; then
        printf '%s: status %s, expected %s and "%s":\n%s\n' "${*/$here\//}" "$status" "$wanted" "$text" "$output" >&2
        exit 1
    fi
    echo "ok ($status): ${*/$here\//}"
}

if [ -n "${WHEEL:-}" ]; then
    wheel=$WHEEL
else
    "${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$here" .
    wheel=$(echo "$here"/dbq-*.whl)
fi
for extra in base run; do
    "${PYTHON:-python3}" -m venv "$here/$extra"
    package=$wheel
    [ "$extra" = base ] || package="$wheel[$extra]"
    PATH="$here/$extra/bin" "$here/$extra/bin/python" -m pip install --quiet -c constraints.txt "$package"
done
PATH=$here/run/bin:$here/base/bin

net=$here/net.dbq
unset PYTHONPATH
expect 0 "base: loaded" "$here/base/bin/python" -m tests.install_check "$net"
expect 2 "pip install 'dbq[run]'" "$here/base/bin/dbq" --help
expect 2 "pip install 'dbq[run]'" "$here/base/bin/python" -m dbq inspect "$net"

dbq=$here/run/bin/dbq
expect 1 "No module named 'torch'" "$here/run/bin/python" -c "import torch"
"$here/run/bin/python" -c "from PIL import Image; Image.new('L', (5, 4), 77).save('$here/grey.png')"
expect 0 "Usage" "$dbq" --help
expect 0 "digits-2t" "$dbq" recipes list
expect 0 "MMACs" "$dbq" inspect "$net"
expect 0 "kernel" "$dbq" inspect "$net" --kernels
expect 0 "grey.png" "$dbq" run "$net" "$here/grey.png"
expect 0 "images/s" "$dbq" bench "$net" --seconds 0.1
expect 0 "dbq[train]" "$dbq" doctor
for command in "train digits-2t --out $here/job" "eval $here/job" "export $here/job" "cost resnet20" \
    "recipes show digits-2t" "data check digits" "tables" "demo --out $here/job"; do
    # shellcheck disable=SC2086
    expect 2 "pip install 'dbq[train]'" "$dbq" $command
done
expect 2 "pip install 'dbq[train]'" "$dbq" report "$here/job"
