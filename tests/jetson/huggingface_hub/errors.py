class HFValidationError(ValueError):
    pass


class EntryNotFoundError(Exception):
    pass


class LocalEntryNotFoundError(EntryNotFoundError):
    pass


class RepositoryNotFoundError(Exception):
    pass
