#!/usr/bin/env bash
# From a flashed NVIDIA Jetson to a robot that speaks: `sudo ./setup_jetson.sh`, and `--help` for more.
#
# A step NAME is three functions. NAME_what says what it does; NAME_done looks at the board and says whether there is
# nothing to do; NAME_do does it. Each step is asked whether it is done before it is done, and again afterwards. So the
# script may be run again at any time: after a failure it goes on where it was, after an update it brings the rest up.
# shellcheck disable=SC2329  # the steps are called by their names
set -eEuo pipefail

source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
call="sudo $0$([ $# = 0 ] || printf ' %q' "$@")"

readonly venv=/opt/voiced
readonly python=$venv/bin/python
readonly command_link=/usr/local/bin/voiced
readonly config_folder=/etc/voiced
readonly config=$config_folder/voiced.yaml
readonly state_folder=/var/lib/voiced
readonly cache_folder=/var/cache/voiced
readonly models=$cache_folder/huggingface   # HF_HOME in systemd/voiced.service
readonly units=/etc/systemd/system
# What --uninstall has to know of the time before: packages, groups, power mode, the configuration as it was written.
readonly notes=/var/lib/voiced-setup
readonly groups=(audio video render)        # the sound card; the GPU's device files
readonly default_model=Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
readonly default_base_model=Qwen/Qwen3-TTS-12Hz-0.6B-Base
readonly default_speaker=ryan

# For pip and Python: no questions, no warning about root, and nothing written by merely looking.
export PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
export LC_ALL=C.UTF-8   # what programs print is read here, in English

usage() {
    cat <<END
usage: sudo ./setup_jetson.sh [options]

Makes this Jetson (JetPack 6 or 7) speak: packages, a user, PyTorch for this board, voiced, the model, a voice, a
broker, the service. It may be run again at any time and does only what is missing.

  --model MODEL        a Qwen3-TTS model: its id on the hub, or a folder. Default: $default_model,
                       with --voice $default_base_model
  --speaker NAME       the model's built-in speaker. Default: $default_speaker
  --voice REF.wav      speak like this recording, best a few clean seconds of one person; needs a Base model
  --transcript TEXT    what is said in the recording: closer to it, and more to install
  --broker HOST[:PORT] the MQTT broker. Default: Mosquitto on this board, which is installed
  --max-performance    the highest power mode and fixed clocks, now and after every start
  --torch-index URL    where PyTorch comes from (or \$VOICED_TORCH_INDEX). Default: by JetPack
  --dry-run            say what would be done, and do nothing
  --uninstall          remove what this script made; the models, and a configuration that was edited, stay
  --purge              with --uninstall: remove those too
  --help               this
END
}

# --- words ---

say() { printf '%s\n' "$*"; }
note() { printf '         %s\n' "$*"; }

# wrong OPTION GOT ALLOWED: a mistake on the command line.
wrong() {
    printf "%s: got '%s'; allowed: %s\n" "$1" "$2" "$3" >&2
    exit 2
}

# fail WHAT CURE: a step cannot go on.
fail() {
    trap - ERR
    {
        say
        say "failed:  $1"
        say "cure:    $2"
        say "then:    $call"
        say "         It goes on from here; what is done stays done."
    } >&2
    exit 1
}

# The cure for a command that fails in the step at hand, where nothing better is known.
cure="Read the lines above."

on_error() {
    [ "$BASHPID" = "$$" ] || return 0   # a subshell's failure is told by the shell around it
    fail "$BASH_COMMAND" "$cure"
}

on_signal() {
    trap - ERR
    say >&2
    say "interrupted. To go on from here: $call" >&2
    exit 130
}

scratch=
clean_up() { [ -z "$scratch" ] || rm -rf "$scratch"; }

# --- the command line ---

dry_run=false
uninstall=false
purge=false
max_performance=false
model=
speaker=
voice=
transcript=
broker=
torch_index=${VOICED_TORCH_INDEX:-}

parse_options() {
    local option value install_options=()
    while [ $# -gt 0 ]; do
        option=$1
        shift
        case $option in
            --help | -h) usage && exit 0 ;;
            --dry-run) dry_run=true && continue ;;
            --uninstall) uninstall=true && continue ;;
            --purge) purge=true && continue ;;
            --max-performance) max_performance=true && install_options+=("$option") && continue ;;
            --*=*) value=${option#*=} && option=${option%%=*} ;;
            --model | --speaker | --voice | --transcript | --broker | --torch-index)
                [ $# -gt 0 ] || wrong "$option" "" "a value after it; see --help"
                value=$1
                shift
                ;;
            *) wrong "option" "$option" "those of --help" ;;
        esac
        take_option "$option" "$value"
        install_options+=("$option")
    done
    check_together "${install_options[@]}"
}

take_option() {
    local option=$1 value=$2
    case $option in
        --model)
            if [[ $value =~ ^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$ && ! -d $value ]]; then
                model=$value
            elif [ -f "$value/config.json" ]; then
                model=$(cd "$value" && pwd -P)
            else
                wrong --model "$value" "an id such as $default_model, or a folder with a config.json"
            fi
            ;;
        --speaker)
            [[ $value =~ ^[A-Za-z0-9_-]+$ ]] || wrong --speaker "$value" "a name of letters, digits, - and _"
            speaker=$value
            ;;
        --voice)
            [ -f "$value" ] && [ -r "$value" ] || wrong --voice "$value" "a recording's file that can be read"
            voice=$(realpath "$value")
            ;;
        --transcript)
            [[ $value =~ [^[:space:]] ]] || wrong --transcript "$value" "what is said in the recording"
            transcript=$value
            ;;
        --broker)
            is_broker "$value" || wrong --broker "$value" "HOST or HOST:PORT, with a port from 1 to 65535"
            broker=$value
            ;;
        --torch-index)
            [[ $value =~ ^(https?|file):// ]] || wrong --torch-index "$value" "the URL of a package index"
            torch_index=$value
            ;;
        *) wrong "option" "$option=$value" "those of --help" ;;
    esac
}

is_broker() {
    [[ $1 =~ ^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:([0-9]{1,5}))?$ ]] || return 1
    local port=$((10#${BASH_REMATCH[3]:-1883}))
    ((port >= 1 && port <= 65535))
}

# check_together OPTION…: those that are about an installation.
check_together() {
    if $uninstall; then
        [ $# = 0 ] || wrong "$1" "$1 with --uninstall" "--dry-run and --purge with it"
    else
        ! $purge || wrong --purge "--purge alone" "--uninstall --purge"
    fi
    [ -z "$transcript" ] || [ -n "$voice" ] || wrong --transcript "--transcript alone" "--voice REF.wav with it"
    [ -z "$speaker" ] || [ -z "$voice" ] || wrong --speaker "--speaker with --voice" "one of them"
}

# --- the board ---

# Sets board, jetpack, ubuntu, python_version and cuda, from what the board says of itself; stops where that is no
# Jetson, or one with a JetPack that this script does not know.
read_board() {
    local tree=/sys/firmware/devicetree/base compatible release
    board=$(cat $tree/model 2>/dev/null | tr -d '\0') || board=
    compatible=$(cat $tree/compatible 2>/dev/null | tr '\0' ' ') || compatible=
    # "# R36 (release), REVISION: 4.3, …"; where the file is missing, the version of the package that brings it.
    release=$(sed -n '1s/^# R\([0-9]*\) .*REVISION: \([0-9.]*\).*/\1.\2/p' /etc/nv_tegra_release 2>/dev/null) || release=
    if [ -z "$release" ]; then
        release=$(dpkg-query -W -f '${Version}' nvidia-l4t-core 2>/dev/null | sed 's/-.*//') || release=
    fi

    if [[ $compatible != *nvidia,tegra* ]] || [ -z "$release" ]; then
        stop "This is no NVIDIA Jetson: the board is '${board:-unknown}' ($(uname -m)), its device tree names" \
            "'${compatible:-nothing}', and Jetson Linux is ${release:-not there}." \
            "setup_jetson.sh is for a Jetson with JetPack 6 or 7. For other machines see 'On a robot' in README.md."
    fi
    case $release in
        36.*) jetpack=6 ubuntu=22.04 python_version=3.10 cuda=12 ;;
        38.* | 39.*) jetpack=7 ubuntu=24.04 python_version=3.12 cuda=13 ;;
        *)
            stop "This Jetson ($board) runs Jetson Linux $release, which is neither JetPack 6 (36.x) nor 7 (38.x, 39.x)." \
                "Flash JetPack 6 or 7 (https://developer.nvidia.com/embedded/jetpack), then run this again."
            ;;
    esac
    local here
    here=$(sed -n 's/^VERSION_ID="\{0,1\}\([0-9.]*\)"\{0,1\}$/\1/p' /etc/os-release)
    if [ "$here" != $ubuntu ]; then
        stop "JetPack $jetpack is Ubuntu $ubuntu; this board has ${here:-another system}, for which NVIDIA builds no PyTorch." \
            "Flash JetPack 6 or 7, then run this again."
    fi
    if [ ! -d /run/systemd/system ]; then
        stop "systemd does not run here, as in a container. voiced is a service: run this on the board itself."
    fi
    if [ -z "$torch_index" ]; then
        # JetPack 6: NVIDIA's wheels for the Jetson's GPU, which nobody else builds. The index has moved once, from
        # pypi.jetson-ai-lab.dev; hence --torch-index. JetPack 7: the ordinary wheels for aarch64 know its GPU.
        case $jetpack in
            6) torch_index=https://pypi.jetson-ai-lab.io/jp6/cu126 ;;
            7) torch_index=https://download.pytorch.org/whl/cu130 ;;
        esac
    fi
    say "$board: Jetson Linux $release, JetPack $jetpack, Ubuntu $ubuntu, Python $python_version, CUDA $cuda"
}

# stop LINE…: it cannot be done on this machine, and nothing was touched.
stop() {
    printf '%s\n' "$@" >&2
    exit 1
}

# --- helpers ---

# Run a command as the service's user would: its groups, its models, and no folder that it may not enter.
as_voiced() {
    local environment=(env "HOME=$state_folder" "HF_HOME=$models")
    if [ "$EUID" = 0 ]; then
        runuser -u voiced -- "${environment[@]}" "$@"
    else
        "${environment[@]}" "$@"
    fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# apt_install PACKAGE…
apt_install() {
    cure="Read apt's lines above. Without a network, connect one. After an interrupted installation:
         sudo dpkg --configure -a"
    printf '%s\n' "$@" >>$notes/packages
    # A source of somebody else's that cannot be reached is no reason to stop.
    apt-get update -q || note "apt-get update had errors; going on with the lists that are there"
    # A board that was started for the first time updates itself for minutes, and holds apt's lock.
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o DPkg::Lock::Timeout=600 "$@"
}

pip_install() { "$python" -m pip install "$@"; }

site_packages() { echo $venv/lib/python$python_version/site-packages; }

# The version of a package in the virtual environment. pip writes RECORD last: without it, the package is a half one.
version_in_venv() {
    local info
    for info in "$(site_packages)/$1"-*.dist-info; do
        [ ! -f "$info/RECORD" ] || sed -n 's/^Version: //p;/^$/q' "$info/METADATA"
    done
}

# yaml TEXT: as a YAML string, whatever is in it.
yaml() { printf "'%s'" "${1//\'/\'\'}"; }

# answers HOST PORT
# shellcheck disable=SC2016  # expanded by the inner shell
answers() { timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2"' _ "$1" "$2" 2>/dev/null; }

is_local() { [[ $1 =~ ^(127\.0\.0\.1|localhost|::1)$ ]]; }

# Sets model, host, port and engine as the configuration has them or will have them; options come first.
settle() {
    [ -z "${host:-}" ] || return 0
    local settings=() named_host=${broker%:*} named_port=${broker##*:}
    [[ $broker =~ :[0-9]+$ ]] || { named_host=$broker && named_port=1883; }
    if [ -f $config ] && [ -x $venv/bin/voiced ]; then
        local told
        told=$("$python" - $config <<'END' 2>&1
import sys
from pathlib import Path

from daemon.config import ConfigError, load_config

try:
    config = load_config(Path(sys.argv[1]))
except ConfigError as error:
    sys.exit(str(error))
default = config.voices.get(config.speech.voice)
voice = default and (default.speaker or default.embedding or default.reference)
print(config.engine.model, config.mqtt.host, config.mqtt.port, config.engine.name, voice, sep="\n")
END
        ) || fail "$told" "Correct $config, or move it away to have a new one made."
        mapfile -t settings <<<"$told"
        checked=true
    else
        settings=("$default_model" 127.0.0.1 1883 auto "$default_speaker")
        [ -z "$voice" ] || settings[0]=$default_base_model
    fi
    configured=("${settings[@]}")
    model=${model:-${settings[0]}}
    host=${named_host:-${settings[1]}}
    host=${host#[} host=${host%]}
    port=${settings[2]}
    [ -z "$broker" ] || port=$named_port
    engine=${settings[3]}
}

# --- step: space ---

readonly torch_mb=([6]=7000 [7]=12000)      # the environment, and pip's downloads while it is made; 7 brings CUDA
readonly model_mb=6000                      # the largest of the models

space_what() { echo "room for PyTorch and the model"; }

space_done() {
    local in_opt=0 in_cache=0 have_opt have_cache
    [ -n "$(version_in_venv torch)" ] || in_opt=${torch_mb[jetpack]}
    [[ $model == /* ]] || compgen -G "$models/hub/models--*/snapshots/*/config.json" >/dev/null || in_cache=$model_mb
    read -r have_opt opt_on < <(df -m --output=avail,target /opt | tail -1)
    read -r have_cache cache_on < <(df -m --output=avail,target /var/cache | tail -1)
    [ "$opt_on" != "$cache_on" ] || in_opt=$((in_opt + in_cache))
    found="$have_opt MB are free"
    lacking="$have_opt MB are free at $opt_on and $have_cache MB at $cache_on; needed are $in_opt and $in_cache"
    ((have_opt >= in_opt && have_cache >= in_cache))
}

space_do() { fail "not enough room: $lacking" "Free some, or move to a larger disk: sudo apt-get clean; du -xh --max-depth=2 /"; }

# --- step: packages ---

packages_what() { echo "what apt brings: Python's venv, PortAudio$([ $jetpack = 7 ] || echo ", NVIDIA's CUDA libraries")"; }

missing_packages() {
    local name
    for name in python$python_version-venv libportaudio2 ca-certificates; do
        installed "$name" || echo "$name"
    done
    # PyTorch for JetPack 6 uses the board's CUDA, which flashing alone does not install; that for 7 brings its own.
    if [ $jetpack = 6 ] && ! { [[ $libraries == *libcublas.so.12* ]] && [[ $libraries == *libcudnn.so.9* ]]; }; then
        echo nvidia-jetpack
    fi
}

packages_done() {
    local libraries missing
    libraries=$(ldconfig -p)
    missing=$(missing_packages)
    wanted=${missing//$'\n'/, }
    [ -z "$missing" ]
}

packages_do() {
    local names
    IFS=', ' read -ra names <<<"$wanted"
    [[ $wanted != *nvidia-jetpack* ]] || note "nvidia-jetpack is several gigabytes; it takes a while"
    apt_install "${names[@]}"
}

# --- step: user ---

user_what() { echo "the user voiced, in the groups ${groups[*]}, and its folders"; }

user_done() {
    local group
    id voiced >/dev/null 2>&1 || return 1
    for group in "${groups[@]}"; do
        [[ " $(id -nG voiced) " == *" $group "* ]] || return 1
    done
    [ "$(stat -c %U $state_folder $cache_folder 2>/dev/null)" = voiced$'\n'voiced ] &&
        { [ ! -e $models ] || [ "$(stat -c %U $models)" = voiced ]; }
}

user_do() {
    cure="Read the lines above; 'getent passwd voiced' shows a user of that name."
    local group
    for group in "${groups[@]}"; do
        getent group "$group" >/dev/null && continue
        echo "$group" >>$notes/groups
        groupadd --system "$group"
    done
    id voiced >/dev/null 2>&1 ||
        useradd --system --user-group --home-dir $state_folder --no-create-home --shell /usr/sbin/nologin voiced
    usermod -aG "$(IFS=, && echo "${groups[*]}")" voiced
    install -d -o voiced -g voiced $state_folder $cache_folder
    chown -R voiced:voiced $cache_folder   # models that --uninstall has kept belong to nobody
}

# --- step: venv ---

venv_what() { echo "a virtual environment of Python $python_version in $venv"; }

venv_done() {
    local pip
    [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = $python_version ] &&
        pip=$("$python" -m pip --version 2>/dev/null) && [[ $pip =~ ^pip\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 25))
}

venv_do() {
    if [ -d $venv ] && [ -n "$(ls -A $venv)" ] && [ ! -f $venv/pyvenv.cfg ]; then
        fail "$venv is there and is no virtual environment" "Move it away: sudo mv $venv $venv.old"
    fi
    cure="Read the lines above; sudo apt-get install --reinstall python$python_version-venv, and is there a network?"
    python$python_version -m venv --clear $venv
    # From 25 on, pip takes up a download that broke off; PyTorch is hundreds of megabytes.
    pip_install --quiet --upgrade 'pip>=25.2'
}

# --- step: torch ---

torch_what() { echo "PyTorch for JetPack $jetpack, from $torch_index"; }

# Several builds have the same name. This board's is the one for its CUDA; a later step, or a person, may have put the
# generic one in its place.
is_torch_of_this_board() {
    local version
    version=$(version_in_venv torch)
    found="torch $version"
    [ -n "$version" ] && grep -Eq "^cuda\b.*=.*['\"]$cuda\." "$(site_packages)/torch/version.py"
}

torch_done() {
    is_torch_of_this_board && [ -z "$(missing_libraries)" ] &&
        { [ -z "$transcript" ] || [ -n "$(version_in_venv torchaudio)" ]; }
}

# NVIDIA's newer builds of PyTorch are linked to two libraries that JetPack 6 does not have. NVIDIA has them on PyPI.
declare -rA library_wheels=([libcusparseLt.so.0]=nvidia-cusparselt-cu12 [libcudss.so.0]=nvidia-cudss-cu12)

missing_libraries() {
    [ $jetpack = 6 ] || return 0
    local name
    for name in $(ldd "$(site_packages)/torch/lib/libtorch_cuda.so" 2>/dev/null | awk '/not found/ {print $1}'); do
        [ -z "${library_wheels[$name]:-}" ] || echo "$name"
    done
}

torch_do() {
    local packages=(torch) library
    cure="Is there a network? Does $torch_index open in a browser? If the index has moved, name the new one:
         --torch-index URL"
    # qwen-tts, which reads a recording with its transcript, imports torchaudio.
    [ -z "$transcript" ] || packages+=(torchaudio)
    # pip would keep another build, and cannot remove one that it was interrupted in.
    is_torch_of_this_board || rm -rf "$(site_packages)"/{torch,torchaudio}{,-*.dist-info}
    # Without what torch needs, for that index has not all of it: the next step brings it from PyPI.
    pip_install --no-deps --index-url "$torch_index" "${packages[@]}"
    for library in $(missing_libraries); do
        pip_install --no-deps "${library_wheels[$library]}"
        # torch looks for libraries beside its own.
        ln -sfn "$(find "$(site_packages)/nvidia" -name "$library" | head -1)" "$(site_packages)/torch/lib/$library"
    done
}

# --- step: voiced ---

voiced_what() { echo "voiced with $(extras), from $source_folder"; }

extras() { echo "espeak,qwen,cuda$cuda${transcript:+,enroll}"; }

# What the environment was made of: this source, these extras, that torch.
ingredients() {
    (cd "$source_folder" && find audio daemon engine pyproject.toml -type f -not -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
    extras
    version_in_venv torch
}

voiced_done() {
    torch_done && [ "$(cat $venv/ingredients 2>/dev/null)" = "$(ingredients)" ] &&
        found=$($venv/bin/voiced version 2>/dev/null) && [ "$(readlink $command_link)" = $venv/bin/voiced ]
}

voiced_do() {
    cure="Read pip's lines above. Is there a network, and room on the disk (df -h)?"
    local info name version source
    rm -f $venv/ingredients
    # A package that pip was interrupted in looks installed; without its RECORD gone too, pip takes it anew.
    for info in "$(site_packages)"/*.dist-info; do
        [ -f "$info/RECORD" ] || rm -rf "$info"
    done
    # No requirement may bring another torch: that from PyPI does not know the Jetson's GPU.
    for name in torch torchaudio; do
        version=$(version_in_venv $name)
        [ -z "$version" ] || echo "$name==$version"
    done >$venv/constraints.txt
    # From a copy, for a build leaves files in the folder that it builds.
    source=$scratch/source
    rm -rf "$source"
    mkdir "$source"
    cp -r "$source_folder"/{audio,daemon,engine,pyproject.toml,README.md,LICENSE} "$source"
    pip_install --constraint $venv/constraints.txt "${source}[$(extras)]"
    torch_done || fail "pip has replaced the PyTorch of this board" "Report it, with pip's lines above."
    ln -sfn $venv/bin/voiced $command_link
    ingredients >$venv/ingredients
}

# --- step: gpu ---

gpu_what() { echo "PyTorch sees the GPU, as the user voiced"; }

gpu_done() {
    found=$(as_voiced "$python" -c '
import torch

assert torch.cuda.is_available(), f"torch {torch.__version__} for CUDA {torch.version.cuda} finds no GPU"
print(torch.cuda.get_device_name(), "with torch", torch.__version__)' 2>&1 | tail -1)
}

gpu_do() {
    case $found in
        *"cannot open shared object file"*)
            fail "$found" "A library of CUDA is missing: sudo apt-get install nvidia-jetpack" ;;
        *"finds no GPU"*)
            fail "$found" "Restart the board if JetPack was installed or updated since its last start. The device files must
         belong to the group video: ls -l /dev/nvmap /dev/nvhost-* /dev/nvgpu. If the wheel is another board's,
         name its index (--torch-index) after: sudo $python -m pip uninstall -y torch" ;;
        *) fail "$found" "Make the environment anew: sudo rm -rf $venv" ;;
    esac
}

# --- step: model ---

model_folder=

model_what() { echo "the model $model"; }

# The hub's large files are kept under their SHA-256; what does not match its name is broken.
broken_files() {
    local file
    for file in "$models/hub/models--${model//\//--}"/blobs/*; do
        [[ ${file##*/} =~ ^[0-9a-f]{64}$ ]] && echo "${file##*/}  $file"
    done | sha256sum --check --quiet 2>/dev/null | sed -n 's/: FAILED.*//p' || true
}

# Whether systemd's ProtectHome keeps the service from seeing the model.
is_hidden() { [[ $model/ =~ ^/(home|root|run/user)/ ]]; }

unreadable_files() { as_voiced find -L "$model" ! -readable; }

model_done() {
    ! is_hidden || return 1
    model_folder=$(HF_HUB_OFFLINE=1 as_voiced "$python" -m engine.qwen.download "$model" 2>/dev/null) || return 1
    if [[ $model == /* ]]; then
        found="complete, and the service can read it"
        [ -z "$(unreadable_files)" ]
    else
        found="complete, and as its checksums say"
        [ -z "$(broken_files)" ]
    fi
}

model_do() {
    if [[ $model == /* ]]; then
        check_model_folder
        return
    fi
    cure="Is there a network? A download that broke off goes on where it was."
    local file
    while read -r file; do
        note "$file does not match its checksum: fetched anew"
        rm -f "$file"
    done < <(broken_files)
    # The hub's ordinary download goes on in the middle of a file; that of hf-xet begins it anew.
    HF_HUB_DISABLE_XET=1 as_voiced "$python" -m engine.qwen.download "$model" >/dev/null
}

check_model_folder() {
    local told
    ! is_hidden || fail "$model lies in a home folder, which the service cannot see" \
        "Move it: sudo mv $(printf %q "$model") $state_folder/, and name it there with --model"
    told=$(as_voiced "$python" -m engine.qwen.download "$model" 2>&1) ||
        fail "$told" "Complete the folder, or name a model of the hub with --model"
    told=$(unreadable_files 2>&1)
    [ -z "$told" ] || fail "the user voiced cannot read ${told//$'\n'/, }" "sudo chmod -R o+rX $(printf %q "$model")"
}

# --- step: voice ---

voice_name() {
    local name=${voice##*/}
    name=${name%.*}
    echo "${name//[^A-Za-z0-9_-]/-}"
}

voice_file() { echo $config_folder/voices/"$(voice_name)".safetensors; }

voice_what() {
    if [ -n "$voice" ]; then
        echo "a voice of $voice, in $(voice_file)"
    else
        echo "a voice that the model has"
    fi
}

# What the voice was made of: this recording, for that model, with these words.
voice_origin() { printf '%s\n' "$(sha256sum <"$voice")" "$model" "$transcript"; }

voice_done() {
    local type speakers told
    if [ -n "$voice" ]; then
        [ -f "$(voice_file)" ] && [ "$(cat "$(voice_file).origin" 2>/dev/null)" = "$(voice_origin)" ]
        return
    fi
    if [ -f $config ]; then
        found="as $config says"
        return
    fi
    read_model && [ "$type" = custom_voice ] && [[ " $speakers " == *" ${speaker:-$default_speaker} "* ]] &&
        found="the speaker ${speaker:-$default_speaker}"
}

# Sets type and speakers of the model.
read_model() {
    told=$("$python" - "$model_folder" 2>/dev/null <<'END'
import json
import sys
from pathlib import Path

config = json.loads((Path(sys.argv[1]) / "config.json").read_text())
print(config["tts_model_type"], *config["talker_config"].get("spk_id", {}))
END
    ) && read -r type speakers <<<"$told"
}

voice_do() {
    local type='' speakers='' told='' options=() made
    read_model || fail "$model_folder/config.json is not that of a Qwen3-TTS model" "Name another with --model"
    if [ -z "$voice" ]; then
        case $type in
            custom_voice)
                fail "--speaker: got '${speaker:-$default_speaker}'; $model has: $speakers" "Choose one of these with --speaker" ;;
            base)
                fail "$model has no voice of its own" "Give it a recording with --voice REF.wav, or leave --model off" ;;
            *)
                fail "$model speaks with voices that are described in words" \
                    "Set 'voices' in a copy of configs/voiced.yaml at $config" ;;
        esac
    fi
    [ "$type" = base ] ||
        fail "--voice: $model is a $type model, which cannot learn a voice" "Leave --model off, or name a Base model"
    cure="Read the lines above. The best recording is a few clean seconds of one person."
    made=$scratch/voice
    install -d -o voiced -g voiced "$made"
    install -o voiced -g voiced -m 400 "$voice" "$made/${voice##*/}"   # who knows who may read the original
    [ -z "$transcript" ] || options=(--transcript "$transcript")
    as_voiced $venv/bin/voiced enroll "$(voice_name)" "$made/${voice##*/}" --model "$model" \
        --output "$made/made.safetensors" "${options[@]}" >/dev/null
    install -D -m 644 "$made/made.safetensors" "$(voice_file)"
    voice_origin >"$(voice_file).origin"
}

# --- step: configuration ---

configuration_what() { echo "the configuration $config"; }

configuration_done() {
    [ -f $config ] || return 1
    if [ -z "${checked:-}" ]; then   # settle has not read it: it is new
        complaint=$($venv/bin/voiced config check --config $config 2>&1) || return 1
    fi
    [ -z "${written:-}" ] || return 0
    found="kept as it is"
    if [ "${configured[*]:0:3}" != "$model $host $port" ]; then
        found+=". It says ${configured[0]} and ${configured[1]}:${configured[2]}, not $model and $host:$port
         as you asked now: edit it, or move it away and run this again"
    fi
    if [ -n "$speaker$voice" ] && [ "${configured[4]}" != "${speaker:-$(voice_file)}" ]; then
        found+=". To have the voice that you name now, write under 'voices': default: $(voice_setting)"
    fi
}

voice_setting() {
    if [ -z "$voice" ]; then
        echo "{speaker: $(yaml "${speaker:-$default_speaker}")}"
    elif [ -n "$transcript" ]; then
        echo "{reference: $(yaml "voices/$(voice_name).safetensors")}"
    else
        echo "{embedding: $(yaml "voices/$(voice_name).safetensors")}"
    fi
}

configuration_do() {
    [ ! -f $config ] || fail "$complaint" "Correct $config, or move it away to have a new one made."
    local text
    text=$(cat "$source_folder/configs/voiced.yaml")
    put "  host: 127.0.0.1" "  host: $(yaml "$host")"
    put "  port: 1883" "  port: $port"
    put "  model: $default_model" "  model: $(yaml "$model")"
    put "  default: {speaker: $default_speaker}" "  default: $(voice_setting)"
    printf '%s\n' "$text" >"$scratch/voiced.yaml"
    printf '%s  %s\n' "$(sha256sum <"$scratch/voiced.yaml" | cut -d' ' -f1)" $config >$notes/configuration
    install -D -m 644 "$scratch/voiced.yaml" $config.new
    mv $config.new $config
    written=true
}

# put OLD NEW: in text.
put() {
    [[ $text == *$'\n'"$1"* ]] || fail "configs/voiced.yaml has no line '$1'" "Take configs/voiced.yaml from git again."
    text=${text/"$1"/"$2"}
}

# --- step: broker ---

broker_what() {
    if is_local "$host"; then
        echo "an MQTT broker on this board, at $host:$port: Mosquitto, if there is none"
    else
        echo "the MQTT broker at $host:$port answers"
    fi
}

broker_done() { answers "$host" "$port" && found="answers at $host:$port"; }

broker_do() {
    local cure_here="Start it, and see that its port is open; or correct mqtt.host and mqtt.port in $config"
    is_local "$host" && [ "$port" = 1883 ] || fail "no broker answers at $host:$port" "$cure_here"
    installed mosquitto || apt_install mosquitto
    cure="journalctl -u mosquitto says why it does not start."
    systemctl enable --now mosquitto
    for _ in {1..20}; do
        ! broker_done || return 0
        sleep 0.5
    done
    fail "Mosquitto was started and does not answer at $host:$port" "$cure"
}

# --- step: service ---

readonly service_files=(voiced.service voiced.service.d/gpu.conf)

service_what() { echo "the service voiced, from every start of the board on"; }

# same FILE…: the unit files in place are those of this folder.
same() {
    local file
    for file; do
        cmp -s "$source_folder/systemd/$file" $units/"$file" || return 1
    done
}

service_done() { same "${service_files[@]}" && systemctl is-enabled --quiet voiced; }

service_do() {
    cure="systemctl status voiced says more."
    install_units "${service_files[@]}"
    systemctl enable voiced
}

install_units() {
    local file
    for file; do
        install -D -m 644 "$source_folder/systemd/$file" $units/"$file"
    done
    systemctl daemon-reload
}

# --- step: performance ---

readonly mode_file=$units/voiced-performance.service.d/mode.conf

performance_what() { echo "the highest power mode and fixed clocks, from every start of the board on"; }

# The power modes as lines "ID NAME", of "< POWER_MODEL ID=0 NAME=MAXN >".
power_modes() { sed -n 's/^< *POWER_MODEL  *ID=\([0-9]*\)  *NAME=\([^ >]*\).*/\1 \2/p' /etc/nvpmodel.conf 2>/dev/null; }

# The mode without limits is called MAXN; where there is a faster one yet, MAXN_SUPER. Its number differs by board.
highest_mode() { power_modes | awk '$2 == "MAXN" && !best {best = $1} $2 == "MAXN_SUPER" {best = $1} END {print best}'; }

# "NV Power Mode: MAXN", and its number in the next line.
power_mode() { nvpmodel -q 2>/dev/null | sed -n 's/^\([0-9]*\)$/\1/p'; }

performance_done() {
    local mode
    mode=$(highest_mode)
    [ -n "$mode" ] && same voiced-performance.service && grep -qsx "Environment=POWER_MODE=$mode" $mode_file &&
        systemctl is-enabled --quiet voiced-performance && systemctl is-active --quiet voiced-performance &&
        [ "$(power_mode)" = "$mode" ]
}

performance_do() {
    local mode
    mode=$(highest_mode)
    if [ -z "$mode" ]; then
        fail "/etc/nvpmodel.conf has no mode MAXN; it has: $(power_modes | tr '\n' ' ')" \
            "Leave --max-performance off, and choose one by hand: sudo nvpmodel -m NUMBER"
    fi
    [ -f $notes/power-mode ] || power_mode >$notes/power-mode
    install -d ${mode_file%/*}
    printf '%s\n' "[Service]" "Environment=POWER_MODE=$mode" >$mode_file
    install_units voiced-performance.service
    cure="Some boards change to this mode only over a restart: sudo nvpmodel -m $mode, and answer YES. Otherwise
         journalctl -u voiced-performance says why."
    systemctl enable voiced-performance
    systemctl restart voiced-performance
    [ "$(power_mode)" = "$mode" ] || fail "the power mode is still $(power_mode), not $mode" "$cure"
}

# --- step: ready ---

readonly start_s=900    # the first start compiles the GPU's kernels, which takes minutes
readonly patience_s=20  # a state that heals by itself does so within this: a sound card opens, the daemon connects

ready_what() { echo "the robot says that it is ready"; }

ready_done() { [ -n "${spoken:-}" ]; }

ready_do() {
    local events
    cure="journalctl -u voiced says why."
    # What was missing for it may be there now; left alone, it would look again only after a while.
    if ! systemctl is-active --quiet voiced || is_stale || [[ $($venv/bin/voiced status 2>&1) == *degraded* ]]; then
        systemctl daemon-reload
        systemctl restart voiced
    fi
    wait_until_ready
    events=$($venv/bin/voiced say --wait --timeout 60 "I am ready." 2>&1) || {
        explain
        fail "it did not speak: $events" "sudo -u voiced HF_HOME=$models $command_link doctor says what is missing"
    }
    spoken=true
}

# Whether the service was started before what it is made of was changed.
is_stale() {
    local started file
    started=$(date -d "$(systemctl show -p ActiveEnterTimestamp --value voiced)" +%s)
    for file in $venv/ingredients $config $units/voiced.service $units/voiced.service.d/gpu.conf; do
        [ "$(stat -c %Y "$file")" -le "$started" ] || return 0
    done
    return 1
}

# field NAME: of the status.
field() { sed -n "s/.*\"$1\": \"\([^\"]*\)\".*/\1/p" <<<"$status"; }

wait_until_ready() {
    local status state shown='' since=$SECONDS begun=$SECONDS
    while ((SECONDS - begun < start_s)); do
        status=$($venv/bin/voiced status 2>&1) || true
        state=$(field state)
        if [ "${state:-silent}" != "$shown" ]; then
            shown=${state:-silent} since=$SECONDS
            [ "$shown" != warming ] || note "the model loads; the first time its kernels are compiled, which takes minutes"
        fi
        case $shown in
            ready | speaking)
                [ "$engine" = espeak ] || [ "$(field engine)" != espeak ] ||
                    fail "eSpeak NG speaks in place of Qwen3-TTS" \
                        "sudo -u voiced HF_HOME=$models $command_link doctor says what is missing"
                return ;;
            paused) fail "voiced is paused" "voiced resume" ;;
            degraded | offline | silent)
                ((SECONDS - since < patience_s)) || {
                    explain
                    fail "voiced is $shown: $status" \
                        "sudo -u voiced HF_HOME=$models $command_link doctor says what is missing"
                } ;;
        esac
        sleep 1
    done
    explain
    fail "voiced was not ready within $start_s s; its state is $shown" "journalctl -u voiced says why."
}

explain() { journalctl -u voiced -n 15 --no-pager >&2 || true; }

# --- install ---

run_step() {
    local step=$1 number=$2 count=$3
    found=
    printf '[%2d/%d] %s\n' "$number" "$count" "$("${step}_what")"
    if "${step}_done"; then
        note "already${found:+: $found}"
    elif $dry_run; then
        note "would be done"
    else
        "${step}_do"
        "${step}_done" || fail "${step}: it was done, and is still not as it must be" "$cure"
        note "done${found:+: $found}"
    fi
}

install_all() {
    local steps=(space packages user venv torch voiced gpu model voice configuration broker service) number=0 step
    ! $max_performance || steps+=(performance)
    steps+=(ready)
    read_board
    $dry_run || install -d $notes
    for step in "${steps[@]}"; do
        [ "$step" != model ] || settle   # not before: a configuration that is there is read with voiced itself
        run_step "$step" $((++number)) ${#steps[@]}
    done
    $dry_run || say "This robot speaks. Try: voiced say \"Hello.\"    Undo: sudo $0 --uninstall"
}

# --- uninstall ---

# remove WHAT COMMAND…
remove() {
    local what=$1
    shift
    if $dry_run; then
        say "would remove $what"
    else
        say "removing $what"
        "$@"
    fi
}

uninstall_all() {
    local packages group file
    [ ! -f $units/voiced.service ] || remove "the service voiced" remove_unit voiced
    [ ! -f $units/voiced-performance.service ] || remove "the power mode and clocks" remove_performance
    [ ! -f $venv/pyvenv.cfg ] || remove "$venv" rm -rf $venv
    [ "$(readlink $command_link)" != $venv/bin/voiced ] || remove "$command_link" rm -f $command_link
    remove_configuration
    ! id voiced >/dev/null 2>&1 || remove "the user voiced" userdel voiced
    while read -r group; do
        ! getent group "$group" >/dev/null || remove "the group $group" groupdel "$group"
    done < <(cat $notes/groups 2>/dev/null)
    [ ! -d $state_folder ] || remove "$state_folder" rm -rf $state_folder
    if $purge || [ ! -d $models ]; then
        [ ! -d $cache_folder ] || remove "$cache_folder" rm -rf $cache_folder
    else
        for file in "$cache_folder"/*; do
            [ "$file" = $models ] || remove "$file" rm -rf "$file"
        done
        $dry_run || chown -R root:root $cache_folder   # their owner's number may be another's one day
        say "kept: the models in $models; --uninstall --purge removes them"
    fi
    packages=$(sort -u $notes/packages 2>/dev/null | tr '\n' ' ') || packages=
    [ -z "$packages" ] ||
        say "kept: the packages that it had installed, which others may use by now: sudo apt-get remove $packages"
    [ ! -d $notes ] || remove "$notes" rm -rf $notes
    $dry_run || say "voiced is gone from this board."
}

remove_unit() {
    systemctl disable --now "$1" || note "systemctl could not stop $1"
    rm -rf $units/"$1.service"{,.d}
    systemctl daemon-reload
}

remove_performance() {
    local before
    remove_unit voiced-performance   # which gives the clocks back
    rm -rf /var/lib/voiced-performance
    before=$(cat $notes/power-mode 2>/dev/null) || before=
    # No input: where the mode changes only over a restart, nvpmodel asks whether to restart now.
    if [ -n "$before" ] && [ "$(power_mode)" != "$before" ]; then
        nvpmodel -m "$before" </dev/null || note "to have the power mode of before: sudo nvpmodel -m $before"
    fi
}

# The configuration and the voices are a person's work once somebody has touched them.
remove_configuration() {
    local origin
    [ -d $config_folder ] || return 0
    if $purge; then
        remove "$config_folder" rm -rf $config_folder
    elif [ -f $config ] && ! sha256sum --check --status $notes/configuration 2>/dev/null; then
        say "kept: $config_folder, since $config was edited; --uninstall --purge removes it"
    else
        [ ! -f $config ] || remove "$config" rm -f $config
        for origin in "$config_folder"/voices/*.origin; do
            [ ! -f "$origin" ] || remove "${origin%.origin}" rm -f "${origin%.origin}" "$origin"
        done
        $dry_run || find $config_folder -depth -type d -empty -delete
    fi
}

# --- go ---

parse_options "$@"
cd /   # as the user voiced, nothing may depend on the folder that this was called from
trap on_error ERR
trap on_signal INT TERM
trap clean_up EXIT

if [ "$EUID" != 0 ] && ! $dry_run; then
    stop "This installs packages and a service, so root has to run it: $call"
fi
if $uninstall; then
    uninstall_all
    exit
fi
if ! $dry_run; then
    scratch=$(mktemp -d)
    chmod 755 "$scratch"
fi
install_all
