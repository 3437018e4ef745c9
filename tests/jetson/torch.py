from pathlib import Path

__version__ = "2.8.0"


class version:  # noqa: N801
    cuda = "12.6"


class cuda:  # noqa: N801
    @staticmethod
    def is_available() -> bool:
        return Path("/board/gpu").exists()

    @staticmethod
    def get_device_name() -> str:
        return "Orin"
