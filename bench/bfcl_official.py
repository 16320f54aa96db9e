"""Runs the unmodified command of bfcl-eval 2026.3.23 without the SDKs of vendors that the run does not use.

usage: bench/bfcl_official.py generate|evaluate ...     as `python -m bfcl_eval`; `own` is the model of bfcl_own.py
"""
import importlib.abc, importlib.machinery, sys
from unittest.mock import MagicMock

VENDORS = {"anthropic", "bs4", "boto3", "botocore", "cohere", "datamodel_code_generator", "faiss", "google", "html2text",
           "mistralai", "networkx", "qwen_agent", "rank_bm25", "sentence_transformers", "serpapi", "tree_sitter",
           "tree_sitter_java", "tree_sitter_javascript", "writerai"}


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last, so installed packages win."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in VENDORS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return type("Stub", (MagicMock,), {"__path__": []})()

    def exec_module(self, module):
        pass


sys.meta_path.append(Stubs())

if __name__ == "__main__":
    import bfcl_own
    from bfcl_eval.__main__ import cli
    from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING

    MODEL_CONFIG_MAPPING["own"] = bfcl_own.config()
    cli()
